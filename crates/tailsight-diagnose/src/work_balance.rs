//! Whether what messages are said to have worked themselves can be true: together it is at most what the application's threads ran.
//!
//! In: a diagnosis of the total leg with the mean own work of its messages, and the time that the application's threads had on cores.
//! Out: both in the diagnosis ([`WorkBalance`]), and whether the first is larger than it can be. That happens on
//! threads that several requests share of which some are answered by other threads: a thread's work counts for each of them.

use tailsight_lifetime::Threshold;
use tailsight_lifetime::timelines::work::Work;

use crate::Diagnosis;
use crate::model::WorkBalance;

impl WorkBalance {
    /// Whether messages are said to have worked more than the threads ran.
    pub fn is_contradiction(self) -> bool {
        self.ran_ns > 0 && self.own_ns as f64 > Threshold::WorkBalance.times() * self.ran_ns as f64
    }
}

/// What all threads of the application ran, over the messages that they received, ns.
fn ran_ns(work: &Work) -> u64 {
    let threads_ns: u64 = work.threads.iter().map(|thread| thread.user_ns + thread.kernel_ns).sum();
    (threads_ns + work.others_ns) / work.threads.iter().map(|thread| thread.messages).sum::<u64>().max(1)
}

/// Sets what the threads ran, where own work is known.
pub fn set_ran(diagnosis: &mut Diagnosis, work: &Work) {
    if let Some(balance) = &mut diagnosis.work {
        balance.ran_ns = ran_ns(work);
    }
}
