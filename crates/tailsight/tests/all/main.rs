//! The command line as a user meets it: bad input everywhere, live recordings of real servers where BPF is permitted.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tests say what they measured")]

mod agents_live;
mod auto_live;
mod bad_input;
mod containers_live;
mod corpus;
mod exports;
mod fixes_live;
mod functions_live;
mod gates_live;
mod hostile_live;
mod hostile_target_live;
mod http2_live;
mod ideal;
mod intel_pt;
mod live;
mod load_live;
mod lost_nothing;
mod neighbours_live;
mod nic_live;
mod outputs;
mod places_live;
mod privileges_live;
mod recorder_live;
mod reference;
mod runtimes_live;
mod schemas;
mod sent_live;
mod shared_live;
mod silent_file_system;
mod support;
mod symbols_live;
mod tls_live;
mod tokio_live;
mod torture;
mod tune_live;
mod view_pages;
mod waits_live;
mod watch_live;
