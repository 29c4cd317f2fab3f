//! What was queued ahead of the messages, by function and side (NSight §7.4, Figure 19).
//!
//! In: lifetimes, cohorts, paths. Out: [`Queue`] rows; depths are counts, times ns.
//!
//! Kernel work is told by its softirq. What the application did for others is told by its system calls, if these were recorded. By
//! default they are not: then the latest of three marks of the thread's messages that lies before an instant says what it did, a
//! receive call that had its data (processing), the entry of a send call (sending), the last byte at the driver (receiving, with the
//! end of the send call and the event loop). A reply counts for the thread that received its request.

use std::collections::BTreeMap;

use tailsight_kernel::syscalls::{polls, waits_for_data, waits_for_room};
use tailsight_lifetime::{Context, Frame, Lifetimes, Message, Owner, PathSpan, Role};
use tailsight_trace::event::{NET_RX, NET_TX};

use crate::Options;
use crate::cohorts::Cohort;
use crate::functions::sampled::Sampled;
use crate::model::Queue;
use crate::rows::profile::each_part;

const FUNCTIONS: [&str; 5] = ["app send", "app receive", "app processing", "kernel receive", "kernel send"];
const SEND: usize = 0;
const RECEIVE: usize = 1;
const PROCESSING: usize = 2;
const KERNEL_RECEIVE: usize = 3;
const KERNEL_SEND: usize = 4;
/// Most messages of a cohort whose paths are walked, evenly spread.
const WALKED: usize = 1_000;

/// The paths of the messages, with the messages at the times of these paths; ids from `first` on are of the second run.
pub struct Walks<'a> {
    pub(crate) paths: &'a Sampled<'a>,
    pub(crate) messages: &'a [Message],
    pub(crate) first: usize,
}

/// The function that an owner's time ahead of a message is, as Figure 19 groups them.
fn function(owner: &Owner) -> Option<usize> {
    let softirq = |which: u8| owner.frames.iter().any(|f| matches!(f, Frame::Softirq { vec, .. } if *vec == which));
    if softirq(NET_RX) {
        return Some(KERNEL_RECEIVE);
    }
    if softirq(NET_TX) {
        return Some(KERNEL_SEND);
    }
    if owner.context != Context::Ahead {
        return None;
    }
    let call = owner.frames.iter().find_map(|f| match *f {
        Frame::Syscall { nr } => Some(nr),
        _ => None,
    });
    Some(match call {
        Some(nr) if waits_for_room(nr) => SEND,
        Some(nr) if polls(nr) || waits_for_data(nr) => RECEIVE,
        _ => PROCESSING,
    })
}

/// Depth and ns of a message in one function.
type InMessage = (f64, f64);

/// A mark of a thread's message: when, and the function that begins there.
type Mark = (u64, usize);

/// The marks of the threads' messages, by run and thread, in order of time.
struct Marks(BTreeMap<(bool, u32), Vec<Mark>>);

impl Marks {
    fn new(walks: &Walks<'_>) -> Marks {
        let mut out: BTreeMap<(bool, u32), Vec<Mark>> = BTreeMap::new();
        for m in walks.messages {
            let marks_of_thread = out.entry((m.id as usize >= walks.first, m.tid)).or_default();
            let marks = [(m.recv_ns, PROCESSING), (m.send_ns, SEND), (m.xmit_ns, RECEIVE)];
            marks_of_thread.extend(marks.into_iter().filter(|mark| mark.0 != 0));
        }
        // Where the send call's entry was not seen it is the driver's time: nothing is sending then. Requests that share a call share
        // its marks.
        for marks in out.values_mut() {
            let order = |&(at, kind): &Mark| (at, [1, 2, 0][kind]);
            marks.sort_unstable_by_key(order);
            marks.dedup();
        }
        Marks(out)
    }

    /// Divides the time of a message's path that its thread worked for others, `ahead`, by function.
    fn divide(&self, thread: (bool, u32), path: &[PathSpan], ahead: &dyn Fn(&PathSpan) -> bool) -> [InMessage; 3] {
        let mut out = [(0.0, 0.0); 3];
        let marks = self.0.get(&thread).map_or(&[][..], Vec::as_slice);
        // The mark whose function was counted last.
        let mut counted = None;
        for span in path.iter().filter(|span| ahead(span)) {
            let mut at = span.from_ns;
            let mut next = marks.partition_point(|mark| mark.0 <= at);
            while at < span.to_ns {
                let end = marks.get(next).map_or(span.to_ns, |mark| mark.0.min(span.to_ns));
                let kind = next.checked_sub(1).map_or(PROCESSING, |mark| marks[mark].1);
                if end > at {
                    out[kind].1 += (end - at) as f64;
                    out[kind].0 += f64::from(u8::from(counted != Some(next)));
                    counted = Some(next);
                }
                (at, next) = (end.max(at), next + 1);
            }
        }
        out
    }
}

/// Of each kind (whole messages, then each function on both sides) what each message has.
fn of_cohort(
    lifetimes: &Lifetimes,
    options: &Options,
    cohort: &Cohort,
    walks: Option<(&Walks<'_>, &Marks)>,
) -> Vec<Vec<InMessage>> {
    let place: Vec<Option<usize>> = lifetimes.owners.iter().map(function).collect();
    let kinds = 1 + FUNCTIONS.len() * 2;
    let mut out = vec![Vec::with_capacity(cohort.len()); kinds];
    let step = cohort.len().div_ceil(WALKED).max(1);
    for (i, &id) in cohort.ids.iter().enumerate() {
        let mut values = vec![(0.0, 0.0); kinds];
        values[0].0 = f64::from(lifetimes.messages[id as usize].ahead);
        each_part(lifetimes, id, options.leg, |_, part| {
            if let Some(f) = place[part.owner as usize] {
                let at = &mut values[1 + f * 2 + usize::from(part.role == Role::A)];
                at.0 += f64::from(part.count);
                at.1 += part.ns as f64;
            }
            if lifetimes.owners[part.owner as usize].context == Context::Ahead {
                values[0].1 += part.ns as f64;
            }
        });
        let Some((walks, marks)) = walks else {
            out.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
            continue;
        };
        let walked = (i % step == 0).then(|| {
            let message = &walks.messages[id as usize];
            let ahead =
                |span: &PathSpan| place.get(span.owner as usize) == Some(&Some(PROCESSING)) && span.role == Role::A;
            marks.divide((id as usize >= walks.first, message.tid), &walks.paths.path(id, options.leg), &ahead)
        });
        for (kind, (column, value)) in out.iter_mut().zip(values).enumerate() {
            match kind.checked_sub(1).filter(|k| k / 2 <= PROCESSING && k % 2 == 1) {
                None => column.push(value),
                Some(k) => column.extend(walked.map(|parts| parts[k / 2])),
            }
        }
    }
    out
}

/// The rows, in the order of [`FUNCTIONS`], without those that neither cohort met.
pub fn queue(
    lifetimes: &Lifetimes,
    options: &Options,
    cohorts: (&Cohort, &Cohort),
    walks: Option<&Walks<'_>>,
) -> Vec<Queue> {
    let has_calls =
        |o: &Owner| o.context == Context::Ahead && o.frames.iter().any(|f| matches!(f, Frame::Syscall { .. }));
    let walks = walks.filter(|_| !lifetimes.owners.iter().any(has_calls));
    let marks = walks.map(Marks::new);
    let queued = |cohort: &Cohort| of_cohort(lifetimes, options, cohort, walks.zip(marks.as_ref()));
    let (focus, reference) = (queued(cohorts.0), queued(cohorts.1));
    let mean =
        |column: &[InMessage], f: fn(&InMessage) -> f64| column.iter().map(f).sum::<f64>() / column.len().max(1) as f64;
    let mut out = vec![];
    for (kind, (f, r)) in focus.iter().zip(&reference).enumerate() {
        let depth = [mean(f, |x| x.0), mean(r, |x| x.0)];
        let mean_ns = [mean(f, |x| x.1).round() as i64, mean(r, |x| x.1).round() as i64];
        if f.is_empty() || depth == [0.0; 2] && mean_ns == [0; 2] {
            continue;
        }
        let mut relative: Vec<f64> = f.iter().map(|x| x.0 - depth[1]).collect();
        relative.sort_unstable_by(f64::total_cmp);
        let at = |p: usize| relative[(relative.len() * p).div_ceil(100).max(1) - 1];
        let (function, role) = match kind.checked_sub(1) {
            None => ("messages", Role::A),
            Some(k) => (FUNCTIONS[k / 2], if k % 2 == 1 { Role::A } else { Role::R }),
        };
        // Of those that were walked, in proportion.
        let more = relative.iter().filter(|d| **d > 0.0).count() as u64;
        let messages = (more as f64 * cohorts.0.len() as f64 / f.len() as f64).round() as u64;
        out.push(Queue {
            function: function.into(),
            role,
            depth,
            relative: [at(10), at(50), at(90)],
            mean_ns,
            messages,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread works off three requests; a fourth waits from 150 to 900, in which an interrupt takes 600 to 650.
    #[test]
    fn work_for_others_is_divided_by_the_marks_of_their_messages() {
        let done = |recv_ns, send_ns, xmit_ns| vec![(recv_ns, PROCESSING), (send_ns, SEND), (xmit_ns, RECEIVE)];
        let marks = [done(100, 200, 260), done(300, 400, 450), done(500, 700, 800)].concat();
        let marks = Marks(BTreeMap::from([((false, 7), marks)]));
        let span = |from_ns, to_ns, owner| PathSpan {
            from_ns,
            to_ns,
            cpu: Some(0),
            role: Role::A,
            owner,
            begins: true,
            rule: None,
        };
        let path = [span(150, 600, 1), span(600, 650, 2), span(650, 900, 1)];
        let [send, receive, processing] = marks.divide((false, 7), &path, &|span| span.owner == 1);
        assert_eq!(send, (3.0, (60 + 50 + 100) as f64));
        assert_eq!(receive, (3.0, (40 + 50 + 100) as f64));
        // The third request's is one, though the interrupt came between.
        assert_eq!(processing, (3.0, (50 + 100 + 100 + 50) as f64));
        let sum: f64 = [send, receive, processing].iter().map(|part| part.1).sum();
        assert_eq!(sum, (450 + 250) as f64, "nothing is lost");
        // Of a thread of another run with the same number nothing is known: all of it is processing, once.
        let other = marks.divide((true, 7), &path, &|span| span.owner == 1);
        assert_eq!(other, [(0.0, 0.0), (0.0, 0.0), (1.0, 700.0)]);
    }
}
