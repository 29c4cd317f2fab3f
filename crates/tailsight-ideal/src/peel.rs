//! Peeling: the lifetimes that messages would have had without some causes, to find what these hid.
//!
//! In: lifetimes, the causes to remove, and the latencies that the replay predicts. Out: lifetimes with these latencies, to be diagnosed
//! like any others. Times in ns.

use std::fmt;
use std::str::FromStr;

use tailsight_lifetime::{LEGS, Leg, Lifetimes, Owner, Part, Role};

use super::hooks::Hooks;
use tailsight_diagnose::cause::{Category, names};
use tailsight_diagnose::glob;
use tailsight_diagnose::model::Cause;

/// A cause as it is named on the command line: `CATEGORY` or `CATEGORY:WHO`, with wildcards in WHO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    category: Category,
    who: Option<String>,
}

impl Named {
    /// Whether a cause is meant: by its name, with the frames in it or without them.
    #[must_use]
    pub fn is(&self, cause: &Cause) -> bool {
        let base = cause.subject.as_ref().map(names::base);
        let fits = |who: &String| {
            glob::matches(who, &cause.name) || base.as_ref().is_some_and(|base| glob::matches(who, base))
        };
        self.category == cause.category && self.who.as_ref().is_none_or(fits)
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.category.as_str())?;
        self.who.iter().try_for_each(|who| write!(f, ":{who}"))
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (category, who) = text.split_once(':').map_or((text, None), |(category, who)| (category, Some(who)));
        if who.is_some_and(str::is_empty) {
            return Err(format!("`{text}` is not a cause; write CATEGORY, or CATEGORY:WHO as in the diagnosis"));
        }
        Ok(Self { category: category.parse()?, who: who.map(str::to_owned) })
    }
}

/// What is to be taken out of a part met in the leg `LEGS[segment]`: all but so many ns of a message, where it is a cause's; and
/// whether it is waiting behind other messages.
pub(super) type Of<'a> = &'a dyn Fn(usize, &Part) -> (Option<u64>, bool);

/// The lifetimes with these latencies by message. What is taken out of a message goes first, with the hooks that told of it, then waiting behind others, then the rest
/// of its wait for its thread, then all in proportion.
pub(super) fn peeled(lifetimes: &Lifetimes, latencies: &[(u32, u64)], of: Of<'_>) -> Lifetimes {
    let mut messages = lifetimes.messages.clone();
    let parts_of = |id: u32| LEGS.map(|leg| lifetimes.part_slice(id, leg).to_vec());
    let mut parts: Vec<[Vec<Part>; 3]> = messages.iter().map(|m| parts_of(m.id)).collect();
    for (id, latency) in latencies {
        let (m, legs) = (&mut messages[*id as usize], &mut parts[*id as usize]);
        let Some((from, _)) = m.ends(Leg::Total) else { continue };
        shorten(legs, *latency, &lifetimes.owners, of);
        let sum = |leg: usize| legs[leg].iter().map(|part| part.ns).sum::<u64>();
        m.recv_ns = from + sum(0);
        m.send_ns = m.recv_ns + sum(1);
        m.xmit_ns = m.send_ns + sum(2);
        (m.nic_tx_ns, m.nic_tx_error_ns) = (if m.nic_tx_ns == 0 { 0 } else { m.xmit_ns }, 0);
        for at in [&mut m.stack_ns, &mut m.handoff_ns, &mut m.wake_ns, &mut m.on_cpu_ns, &mut m.recv_enter_ns] {
            *at = (*at).min(m.recv_ns);
        }
    }
    let mut out =
        Lifetimes::from_parts(&lifetimes.app, messages, lifetimes.flows.clone(), lifetimes.owners.clone(), parts);
    out.who.clone_from(&lifetimes.who);
    out.cgroups.clone_from(&lifetimes.cgroups);
    out.symbols.clone_from(&lifetimes.symbols);
    out.incomplete.clone_from(&lifetimes.incomplete);
    out.faults.clone_from(&lifetimes.faults);
    out.outgoing.clone_from(&lifetimes.outgoing);
    out.send_entry.clone_from(&lifetimes.send_entry);
    out.classes.clone_from(&lifetimes.classes);
    out.framing.clone_from(&lifetimes.framing);
    out.nic.clone_from(&lifetimes.nic);
    out.numa_moves = lifetimes.numa_moves;
    out.repeated_connects = lifetimes.repeated_connects;
    out
}

fn shorten(legs: &mut [Vec<Part>; 3], latency: u64, owners: &[Owner], of: Of<'_>) {
    let mut taken = Vec::new();
    for (segment, parts) in legs.iter_mut().enumerate() {
        for role in [Role::R, Role::A] {
            let Some(hooks) = Hooks::of(owners, parts, role) else { continue };
            let goes = |part: &&Part| part.role == role && of(segment, part).0.is_some();
            let ns = hooks.with(parts.iter().filter(goes).map(|part| u64::from(part.count)).sum());
            let part = &mut parts[hooks.place];
            taken.push((segment, part.owner, role, ns));
            part.ns -= ns;
        }
        for part in parts.iter_mut() {
            if let (Some(usual), _) = of(segment, part) {
                let kept = part.ns.min(usual);
                taken.push((segment, part.owner, part.role, part.ns - kept));
                part.ns = kept;
            }
        }
    }
    let sum = |legs: &[Vec<Part>; 3]| legs.iter().flatten().map(|part| part.ns).sum::<u64>();
    let left = sum(legs);
    if left < latency {
        give_back(legs, latency - left, taken);
        return;
    }
    let waits = |segment: usize, part: &Part| segment == 0 && part.role == Role::A;
    cut(legs, left - latency, |segment, part| of(segment, part).1);
    cut(legs, sum(legs) - latency, waits);
    cut(legs, sum(legs) - latency, |_, _| true);
    for parts in legs {
        parts.retain(|part| part.ns > 0);
    }
}

/// Takes up to `ns` out of such parts, in proportion.
fn cut(legs: &mut [Vec<Part>; 3], ns: u64, is: impl Fn(usize, &Part) -> bool) {
    let mut cut_parts: Vec<&mut Part> = Vec::new();
    for (segment, parts) in legs.iter_mut().enumerate() {
        cut_parts.extend(parts.iter_mut().filter(|part| is(segment, part)));
    }
    let mut left_ns: u64 = cut_parts.iter().map(|part| part.ns).sum();
    let mut ns = ns.min(left_ns);
    for part in cut_parts {
        // Of what is left to be cut, this one's part of what is left to be looked at: the last has the rest.
        let mine = (u128::from(ns) * u128::from(part.ns)).checked_div(u128::from(left_ns)).unwrap_or(0) as u64;
        (left_ns, ns) = (left_ns - part.ns, ns - mine);
        part.ns -= mine;
    }
}

/// The replay left a message more than all that no cause had: that much of what was taken, the last first, was not taken.
fn give_back(legs: &mut [Vec<Part>; 3], mut ns: u64, taken: Vec<(usize, u32, Role, u64)>) {
    for (segment, owner, role, had) in taken.into_iter().rev() {
        let back = ns.min(had);
        if let Some(part) = legs[segment].iter_mut().find(|part| (part.owner, part.role) == (owner, role)) {
            part.ns += back;
            ns -= back;
        }
    }
    for parts in legs {
        parts.retain(|part| part.ns > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_lifetime::{Context, Message};

    fn part(owner: u32, ns: u64) -> Part {
        Part { role: Role::A, owner, count: 1, ns }
    }

    /// Owner 0 is taken out down to 5 ns, 1 is waiting behind others, 2 is anything else.
    fn of(_: usize, part: &Part) -> (Option<u64>, bool) {
        ((part.owner == 0).then_some(5), part.owner == 1)
    }

    fn shortened(mut legs: [Vec<Part>; 3], latency: u64) -> Vec<Vec<(u32, u64)>> {
        shorten(&mut legs, latency, &[], &of);
        legs.iter().map(|parts| parts.iter().map(|part| (part.owner, part.ns)).collect()).collect()
    }

    #[test]
    fn what_is_taken_out_goes_first_then_the_queue_then_the_rest() {
        let legs = || [vec![part(0, 100), part(1, 50), part(2, 20)], vec![part(2, 30)], vec![]];
        assert_eq!(shortened(legs(), 105), [vec![(0, 5), (1, 50), (2, 20)], vec![(2, 30)], vec![]]);
        assert_eq!(shortened(legs(), 65), [vec![(0, 5), (1, 10), (2, 20)], vec![(2, 30)], vec![]]);
        // The queue is gone, and 13 of the 25 that are left of the wait.
        assert_eq!(shortened(legs(), 42), [vec![(0, 3), (2, 9)], vec![(2, 30)], vec![]]);
        // Not enough there: what was taken out comes back.
        assert_eq!(shortened(legs(), 150), [vec![(0, 50), (1, 50), (2, 20)], vec![(2, 30)], vec![]]);
    }

    #[test]
    fn the_legs_of_what_is_peeled_are_the_sums_of_its_parts() {
        let m = Message {
            id: 0,
            driver_ns: 1000,
            recv_ns: 1170,
            send_ns: 1200,
            xmit_ns: 1210,
            handoff_ns: 1160,
            ..Message::default()
        };
        let owner = || Owner { context: Context::Own, frames: vec![] };
        let parts = [vec![part(0, 100), part(1, 50), part(2, 20)], vec![part(2, 30)], vec![part(2, 10)]];
        let whole = Lifetimes::from_parts("app", vec![m], vec![], vec![owner(), owner(), owner()], vec![parts]);
        let out = peeled(&whole, &[(0, 75)], &of);
        let m = &out.messages[0];
        assert_eq!(
            (m.latency(Leg::Total), m.latency(Leg::Service), m.latency(Leg::Transmit)),
            (Some(75), Some(30), Some(10))
        );
        assert_eq!((m.recv_ns, m.handoff_ns), (1035, 1035));
        for leg in LEGS {
            assert_eq!(Some(out.part_slice(0, leg).iter().map(|p| p.ns).sum()), m.latency(leg));
        }
    }

    /// Two tasks, the one with 2 % of the messages for 900 us, the other with 1.5 % for 300: the larger hides the smaller, and without it
    /// the smaller is first.
    #[test]
    fn without_the_larger_of_two_faults_the_smaller_is_first() {
        let foreign =
            |comm: &str| Owner { context: Context::Foreign { comm: comm.into(), kernel: false }, frames: vec![] };
        let owners = vec![foreign("large"), Owner { context: Context::Ahead, frames: vec![] }, foreign("small")];
        let own = Owner { context: Context::Own, frames: vec![] };
        let parts_of = |i: u32| {
            let mut parts = vec![part(3, 20_000 + u64::from(i % 100) * 10)];
            // Some wait behind those that the larger one held.
            match i % 200 {
                0..=3 => parts.extend([part(0, 900_000), part(1, 5_000)]),
                50..=52 => parts.push(part(2, 300_000)),
                _ => {}
            }
            [parts, vec![part(3, 1_000)], vec![part(3, 500)]]
        };
        let n = 4000;
        let parts: Vec<[Vec<Part>; 3]> = (0..n).map(parts_of).collect();
        let message = |i: u32| {
            let sum = |leg: usize| parts[i as usize][leg].iter().map(|p| p.ns).sum::<u64>();
            let (driver_ns, tid) = (1_000_000 * (u64::from(i) + 1), 7);
            let recv_ns = driver_ns + sum(0);
            Message {
                id: i,
                tid,
                driver_ns,
                handoff_ns: driver_ns,
                recv_ns,
                send_ns: recv_ns + 1_000,
                xmit_ns: recv_ns + 1_500,
                ..Message::default()
            }
        };
        let messages: Vec<Message> = (0..n).map(message).collect();
        let key = tailsight_trace::FlowKey { addrs: 1, ports: 11211 << 16 | 40000, proto: 0 };
        let flow = tailsight_lifetime::Flow { key, name: "flow".into(), messages: n };
        let owners = [owners, vec![own]].concat();
        let whole = Lifetimes::from_parts("app", messages, vec![flow], owners, parts);
        let options = tailsight_diagnose::Options {
            leg: Leg::Total,
            bootstrap_rounds: 50,
            ..tailsight_diagnose::Options::default()
        };
        let named = |of: &Lifetimes| {
            let d = tailsight_diagnose::diagnose(of, &options, &tailsight_diagnose::RecordingFacts::default())
                .expect("a diagnosis");
            (d.causes[0].name.clone(), d.causes[0].share)
        };
        let (name, share) = named(&whole);
        assert!(name == "large" && share > 0.9, "{name} {share}");
        // As the replay would have it: what the task had is gone, and the wait behind others with it.
        let without: Vec<(u32, u64)> = whole
            .messages
            .iter()
            .map(|m| (m.id, m.latency(Leg::Total).unwrap_or(0) - if m.id % 200 <= 3 { 905_000 } else { 0 }))
            .collect();
        let cause_of = |_: usize, part: &Part| ((part.owner == 0).then_some(0), part.owner == 1);
        let (name, share) = named(&peeled(&whole, &without, &cause_of));
        assert!(name == "small" && share > 0.9, "{name} {share}");
    }

    #[test]
    fn a_cause_is_named_by_category_and_who() {
        // Whose it is, and the frames that the nesting rule added.
        let framed = |category, of: &str, frames: &str| {
            let subject = tailsight_diagnose::cause::Subject::Task { name: of.to_owned() };
            Cause::new(category, format!("{of}{frames}"), subject, vec![], Role::A)
        };
        let cause = |category, of: &str| framed(category, of, "");
        let named: Named = "interference:rustc".parse().unwrap();
        assert!(
            named.is(&cause(Category::Interference, "rustc"))
                && named.is(&framed(Category::Interference, "rustc", "/user"))
        );
        assert!(
            !named.is(&cause(Category::Interference, "rustc-2")) && !named.is(&cause(Category::OsThreads, "rustc"))
        );
        // A name with a slash of its own was never meant by it.
        let interrupt: Named = "os-threads:irq/24-eth0".parse().unwrap();
        assert!(interrupt.is(&framed(Category::OsThreads, "irq/24-eth0", "/softirq:net_rx")));
        let packets: Named = "receive-processing:packet:nginx:*".parse().unwrap();
        assert!(packets.is(&cause(Category::ReceiveProcessing, "packet:nginx:8088")));
        assert!("steal".parse::<Named>().unwrap().is(&cause(Category::Steal, "hypervisor")));
        assert_eq!(packets.to_string(), "receive-processing:packet:nginx:*");
        assert!("nonsense:x".parse::<Named>().unwrap_err().contains("interference"));
        assert!("steal:".parse::<Named>().is_err());
    }
}
