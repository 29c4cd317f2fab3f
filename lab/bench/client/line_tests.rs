//! Tests of lateness from the wire on schedules whose lateness is known.

use super::*;
use proptest::prelude::*;

const PORTS: u16 = 16;
/// Bytes of a request.
const SIZE: u32 = 40;
const ZERO: u64 = 1_790_000_000_000_000_000;

/// Requests, one every `gap` ns over 16 connections in turn, each so late; a segment each. Sequence numbers wrap on the way.
fn sent(gap: f64, late: &[u64]) -> Vec<Segment> {
    let mut last = ZERO;
    let mut counts = [0_u32; PORTS as usize];
    let segment = |(k, late): (usize, &u64)| {
        let port = (k % PORTS as usize) as u16;
        let count = &mut counts[usize::from(port)];
        let seq = (u32::MAX - 2000).wrapping_add(*count * SIZE);
        *count += 1;
        // One thread sends in order: who is late holds up those behind.
        last = last.max(ZERO + (k as f64 * gap) as u64 + late);
        Segment { at_ns: last, port, seq, len: SIZE, starts: vec![0] }
    };
    late.iter().enumerate().map(segment).collect()
}

/// The lateness of [`sent`] in the order of sending, ns, less the least.
fn known(gap: f64, segments: &[Segment]) -> Vec<f64> {
    let mut late: Vec<f64> =
        segments.iter().enumerate().map(|(k, s)| (s.at_ns - ZERO) as f64 - (k as f64 * gap).floor()).collect();
    late.sort_unstable_by(f64::total_cmp);
    let least = late[0];
    late.iter().map(|ns| ns - least).collect()
}

fn close(found: &Lateness, known: &[f64], within_ns: f64) -> bool {
    found.late_ns.len() == known.len() && found.late_ns.iter().zip(known).all(|(a, b)| (a - b).abs() <= within_ns)
}

proptest! {
    /// Known lateness goes in, the same comes out, whatever it is and wherever sequence numbers begin.
    #[test]
    fn known_lateness_comes_out(late in prop::collection::vec(0..300_000_u64, 400..600), gap in 10_000.0..200_000.0_f64) {
        let segments = sent(gap, &late);
        let requests = arrivals(&segments);
        prop_assert_eq!((requests.repeated, requests.out_of_order, requests.missing), (0, 0, 0));
        let lateness = Lateness::of(&requests.all, &Line::All(gap), 0).unwrap();
        prop_assert!(close(&lateness, &known(gap, &segments), 2.0));
    }

    /// Every connection with a start of its own: no request is late, although together they keep no line.
    #[test]
    fn connections_have_their_own_lines(starts in prop::collection::vec(0..5_000_000_u64, 16), late in 0..900_000_u64) {
        let mut segments = Vec::new();
        for k in 0..40_u32 {
            for (port, start) in (0..PORTS).zip(&starts) {
                let extra = if k == 20 { late } else { 0 };
                let at_ns = ZERO + start + u64::from(k) * 1_000_000 + extra;
                segments.push(Segment { at_ns, port, seq: k * SIZE, len: SIZE, starts: vec![0] });
            }
        }
        segments.sort_by_key(|s| s.at_ns);
        let lateness = Lateness::of(&arrivals(&segments).all, &Line::Each(1e6), 0).unwrap();
        // 16 of 640 requests are late, all by the same.
        prop_assert!((lateness.us(1.0) - late as f64 / 1e3).abs() < 0.01 && lateness.us(0.97) < 0.01);
    }

    /// Segments that are sent again although they arrived change nothing.
    #[test]
    fn a_retransmission_is_not_a_request(late in prop::collection::vec(0..20_000_u64, 300), again in prop::collection::vec(0..300_usize, 1..20)) {
        let segments = sent(50_000.0, &late);
        let mut with = segments.clone();
        for k in &again {
            with.push(Segment { at_ns: segments[*k].at_ns + 3_000_000, ..segments[*k].clone() });
        }
        with.sort_by_key(|s| s.at_ns);
        let requests = arrivals(&with);
        prop_assert_eq!(&requests.all, &arrivals(&segments).all);
        prop_assert_eq!(requests.repeated, again.len() as u64);
    }

    /// A segment that is lost and sent again is late by that, and makes others late by no more than a gap for each connection.
    #[test]
    fn a_lost_packet_is_late_and_its_neighbours_are_not(which in 100..300_usize, again_ns in 2_000_000..6_000_000_u64) {
        let gap = 50_000.0;
        let mut segments = sent(gap, &[0; 500]);
        segments[which].at_ns += again_ns;
        segments.sort_by_key(|s| s.at_ns);
        let requests = arrivals(&segments);
        prop_assert_eq!((requests.out_of_order, requests.missing, requests.all.len()), (1, 0, 500));
        let lateness = Lateness::of(&requests.all, &Line::All(gap), 0).unwrap();
        let most = lateness.us(1.0) * 1e3;
        prop_assert!(most <= again_ns as f64 + 2.0 && most >= again_ns as f64 - f64::from(PORTS) * gap - 2.0, "{}", most);
        prop_assert!(lateness.us(0.99) * 1e3 <= gap + 2.0 && lateness.us(0.9) < 0.01);
    }

    /// Drawn schedules are found again, with requests before them and lateness.
    #[test]
    fn a_drawn_schedule_is_found_behind_the_first_requests(gaps in prop::collection::vec(1..200_000_u64, 500), before in 0..40_usize, which in 0..500_usize) {
        let due: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
        let arrival = |at_ns| Arrival { at_ns, place_ns: at_ns, port: 1 };
        let mut requests: Vec<Arrival> = (0..before as u64).map(|k| arrival(ZERO + k * 20_000)).collect();
        // The late one holds up those behind it.
        let mut last = 0;
        requests.extend(due.iter().enumerate().map(|(k, due)| {
            last = last.max(ZERO + 50_000_000 + due + if k == which { 77_000 } else { 3_000 });
            arrival(last)
        }));
        let lateness = Lateness::of(&requests, &Line::Times(due.clone()), 0).unwrap();
        prop_assert!(lateness.us(0.5) < 0.01 && lateness.late_ns.len() == 500, "{:?}", lateness.us(0.5));
        prop_assert!((lateness.us(1.0) - 74.0).abs() < 0.01, "{}", lateness.us(1.0));
    }

    /// A rate that is off shows as drift, and as lateness that grows.
    #[test]
    fn a_slow_rate_drifts(ppm in 50.0..20_000.0_f64, noise in 0..20_000_u64) {
        let gap = 50_000.0;
        let slow = gap * (1.0 + ppm / 1e6);
        let late: Vec<u64> = (0..20_000).map(|k| k * 7919 % (noise + 1)).collect();
        let lateness = Lateness::of(&arrivals(&sent(slow, &late)).all, &Line::All(gap), 0).unwrap();
        prop_assert!((lateness.drift * 1e6 / ppm - 1.0).abs() < 0.05 + 1.0 / ppm, "{} {}", lateness.drift * 1e6, ppm);
        prop_assert!((lateness.us(1.0) * 1e3 - 19_999.0 * (slow - gap)).abs() <= noise as f64 + 60_000.0);
    }
}

/// One late request does not move the line, also not when it is the first.
#[test]
fn a_late_first_request_makes_only_itself_late() {
    let mut late = vec![0; 1000];
    late[0] = 45_000;
    let lateness = Lateness::of(&arrivals(&sent(50_000.0, &late)).all, &Line::All(50_000.0), 0).unwrap();
    assert_eq!((lateness.us(0.5), lateness.us(0.999), lateness.us(1.0)), (0.0, 0.0, 45.0));
    assert_eq!(lateness.drift, 0.0);
}

/// What comes in the first moments is left out, and the rest still finds its line.
#[test]
fn a_slow_start_is_left_out() {
    let mut late = vec![0; 1000];
    late[..100].fill(900_000);
    let requests = arrivals(&sent(50_000.0, &late)).all;
    assert!(Lateness::of(&requests, &Line::All(50_000.0), 0).unwrap().us(0.95) > 800.0);
    assert_eq!(Lateness::of(&requests, &Line::All(50_000.0), 6_000_000).unwrap().us(1.0), 0.0);
    assert!(Lateness::of(&requests, &Line::All(50_000.0), u64::from(u32::MAX)).is_none());
}

/// Bytes that the capture never saw are counted: the requests in them are not, so the run has no line.
#[test]
fn a_hole_is_counted() {
    let mut segments = sent(50_000.0, &[0; 200]);
    segments.remove(100);
    let requests = arrivals(&segments);
    assert_eq!((requests.missing, requests.all.len()), (u64::from(SIZE), 199));
}

/// Several requests in a segment each count; a retransmission that brings old and new bytes counts the new ones only.
#[test]
fn requests_are_counted_by_where_they_begin() {
    let two = Segment { at_ns: 10, port: 7, seq: 100, len: 80, starts: vec![0, 40] };
    let repeated = Segment { at_ns: 20, port: 7, seq: 140, len: 80, starts: vec![0, 40] };
    let requests = arrivals(&[two, repeated]);
    assert_eq!(requests.all.iter().map(|a| a.at_ns).collect::<Vec<_>>(), [10, 10, 20]);
    assert_eq!((requests.repeated, requests.out_of_order, requests.missing), (0, 0, 0));
}

#[test]
fn gaps_tell_bursts_from_steady_arrivals() {
    let steady = arrivals(&sent(50_000.0, &[0; 2000])).all;
    assert_eq!(gaps_us(&steady, 0), Some((50.0, 50.0)));
    let at = |k: u64| Arrival { at_ns: k / 20 * 1_000_000 + k % 20 * 1000, place_ns: 0, port: 1 };
    assert_eq!(gaps_us(&(0..2000).map(at).collect::<Vec<_>>(), 0), Some((1.0, 981.0)));
}
