//! Live tests of the lab: our own servers, faults, and a scenario that is killed half-way. They need root; without it each
//! is skipped by name.

mod own_servers;
mod programs;
mod scenarios;

use tailsight_testbed::netns::Pair;

/// A pair, or `None` and a line that says why the test is skipped.
fn pair(test: &str) -> Option<Pair> {
    if let Some(reason) = tailsight_testing::lacks_networks() {
        tailsight_testing::skip_as(test, reason);
        return None;
    }
    Some(Pair::create("live").unwrap())
}
