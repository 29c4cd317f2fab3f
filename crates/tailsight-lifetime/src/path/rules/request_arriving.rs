//! The thread waited for whatever comes, and the rest of the request came then, or something for others meanwhile.
//!
//! A client, or its network, that sends a request in parts lets its server wait.
//!
//! Example: `a_server_that_has_a_part_of_a_request_waits_for_its_client` in `tests/all/waits.rs`.

use super::{Case, Verdict};
use crate::model::Frame;

pub(super) fn ask(case: &Case<'_>) -> Option<Verdict> {
    let in_time = case.depth == 0 && case.ended <= case.focus.of_message.arrives_until;
    let arriving = in_time && case.ended_by().is_none() && case.wait.how.is_for_what_comes();
    arriving.then_some(Verdict::Wait(Frame::RequestArriving))
}
