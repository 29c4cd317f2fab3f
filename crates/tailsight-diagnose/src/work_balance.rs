//! Whether what messages are said to have worked themselves can be true: together it is at most what the application's threads ran.
//!
//! In: a diagnosis of the total leg with the mean own work of its messages, and the time that the application's threads had on cores.
//! Out: both in the diagnosis ([`WorkBalance`]), and, where the first is larger than it can be, sentences that say so. That happens on
//! threads that several requests share of which some are answered by other threads: a thread's work counts for each of them.

use tailsight_lifetime::timelines::work::Work;
use tailsight_units::format::duration;

use crate::Diagnosis;
use crate::cause::{Category, Subject};
use crate::model::{Cause, WorkBalance};

/// Own work may be so many times what the threads ran: both are means, one of a sample, and one has the recording's ends.
const LIMIT: f64 = 1.5;

impl WorkBalance {
    /// Whether messages are said to have worked more than the threads ran.
    pub fn is_contradiction(self) -> bool {
        self.ran_ns > 0 && self.own_ns as f64 > LIMIT * self.ran_ns as f64
    }
}

/// What all threads of the application ran, over the messages that they received, ns.
fn ran_ns(work: &Work) -> u64 {
    let threads_ns: u64 = work.threads.iter().map(|thread| thread.user_ns + thread.kernel_ns).sum();
    (threads_ns + work.others_ns) / work.threads.iter().map(|thread| thread.messages).sum::<u64>().max(1)
}

/// Sets what the threads ran. Where the messages' own work is more, each cause that is own work says that a part of it is others', and a
/// note says why.
pub fn check(diagnosis: &mut Diagnosis, work: &Work) {
    let Some(balance) = &mut diagnosis.work else { return };
    let ran_ns = ran_ns(work);
    balance.ran_ns = ran_ns;
    let balance = *balance;
    if !balance.is_contradiction() {
        return;
    }
    let [own, ran] = [balance.own_ns, ran_ns].map(duration);
    for cause in diagnosis.causes.iter_mut().filter(|cause| is_own(cause)) {
        cause.explanation += &format!("; a part of it is work for other requests: the threads ran only {ran} for each");
    }
    diagnosis.notes.push(format!(
        "own work is counted more than once: messages are said to have worked {own} themselves, and all threads together ran {ran} for each. \
         Several requests share a thread, and no event tells for which of them it worked; rows of the application's own work are upper bounds"
    ));
}

/// Whether a cause is work of the message itself. A runtime's own work is not: a collector runs on other threads.
fn is_own(cause: &Cause) -> bool {
    let others =
        matches!(cause.subject, Some(Subject::OtherThread { .. } | Subject::WaitIn { .. } | Subject::WaitFor { .. }));
    cause.category == Category::AppProcessing && !others
}
