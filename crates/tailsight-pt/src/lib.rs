//! From an Intel PT recording of perf to function calls and returns with nanoseconds.
//!
//! In: a perf.data file (or the directory of `perf record --kcore`), and the programs that ran. Out: [`stacks::Event`]s: on each core,
//! which function was entered and left when, by which thread, and where nothing is known. The modules are the way that the trace
//! goes: [`container`] takes the file apart, [`sideband`] says who ran and what was mapped, [`memory`] and [`symbols`] what code that
//! was, [`index`] where decoding can begin, [`decode`] gives the control flow of a piece of trace, [`stacks`] the nested spans, and
//! [`recording`] brings them together: all cores at once, decoded ahead on all cores of this machine, in order of time, a bounded part of
//! the trace in memory.
//!
//! [`script`] reads what `perf script` printed of a recording instead, and [`import`] makes a run of either.
//!
//! Packets and instructions are decoded by libipt, Intel's own decoder; the container's records are parsed by `linux-perf-data`. Times
//! are perf's, ns, as the recorded kernel relates them to the time-stamp counter.
//!
//! NSight (NSDI'22) §4.1 and §5.1 is what this is for. No machine with Intel PT has run this yet: it is proved on recordings made
//! elsewhere, and on encoded executions whose time is assigned and not measured (docs/intel-pt.md).

mod ahead;
pub mod container;
pub mod decode;
pub mod error;
pub mod import;
pub mod index;
pub mod memory;
pub mod recording;
pub mod script;
pub mod sideband;
pub mod stacks;
pub mod symbols;

pub use decode::Gap;
pub use error::Error;
pub use import::{Imported, Timeline};
pub use memory::Places;
pub use recording::{Recording, Summary, Window};
pub use script::Script;
pub use stacks::{Entry, Event, What};
