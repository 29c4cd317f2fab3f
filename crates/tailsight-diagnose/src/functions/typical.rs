//! Where in the program the median messages wait.
//!
//! In: the rows of the median messages, and the places of their sleeps. Out: the same rows with functions; what a
//! runtime is known to wait for there is the row's name and category, as it is a cause's.

use tailsight_lifetime::{Frame, LEGS};

use super::{InMessage, Search};
use crate::model::{Cause, Typical, TypicalRow};
use crate::rows::classification::Classification;
use crate::rows::profile::each_part;
use crate::typical::row_of;

impl Search<'_> {
    /// Divides the rows that are waits of the application's own. `cohort`: the median messages by
    /// (latency, id).
    pub fn typical(&self, typical: &mut Typical, classification: &Classification<'_>, cohort: Vec<(u64, u32)>) {
        let function_of = self.functions();
        let is_wait = |row: &&mut TypicalRow| row.is_large() && row.is_own_wait();
        for row in typical.rows.iter_mut().filter(is_wait) {
            let key = (row.leg, row.category, row.name.clone(), row.role);
            let of_message = |&(_, id): &(u64, u32)| {
                let mut message = InMessage::default();
                each_part(self.lifetimes, id, self.options.leg, |segment, part| {
                    if LEGS[segment] != key.0 || row_of(classification, segment, part.role, part.owner).0 != key {
                        return;
                    }
                    if let Some(&Frame::Place { stack }) = self.lifetimes.owners[part.owner as usize].frames.last() {
                        message.ns += part.ns as f64;
                        message.stacks.push((stack, part.ns));
                    }
                });
                message
            };
            // Beside nothing: all of it is asked for.
            let messages = [cohort.iter().map(of_message).collect(), vec![InMessage::default()]];
            self.row(row, &messages, &function_of);
        }
    }

    fn row(&self, row: &mut TypicalRow, messages: &super::InCohorts, function_of: &[u32]) {
        let Some(subject) = row.subject.clone() else { return };
        let mut cause = Cause {
            mean_ns: [row.mean_ns as i64, 0],
            deviation_ns: row.mean_ns as i64,
            ..Cause::new(row.category, row.name.clone(), subject, vec![], row.role)
        };
        self.divide_by(&mut cause, messages, function_of, true);
        (row.category, row.name, row.subject) = (cause.category, cause.name, cause.subject);
        row.functions = cause.functions;
    }
}
