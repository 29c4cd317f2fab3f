//! From an Intel PT recording of perf to function calls and returns with nanoseconds.
//!
//! In: a perf.data file (or the directory of `perf record --kcore`), and the programs that ran. Out: [`stacks::Event`]s: when each
//! function was entered and left, on which core and by which thread, and for which times nothing is known. The modules, in the order of
//! the data: [`container`] parses the file; [`sideband`] knows which thread ran and what was mapped; [`memory`] and [`symbols`] know the
//! code; [`index`] finds where decoding can begin; [`decode`] decodes the control flow of a piece of trace; [`stacks`] makes nested spans
//! of it; and [`recording`] puts the events of all cores in order of time. Pieces are decoded ahead on all cores of this machine, with a
//! bounded part of the trace in memory.
//!
//! [`script`] reads the output of `perf script` instead, and [`import`] makes a run from either.
//!
//! Packets and blocks of code are followed by decoders of our own, which keep to the rules of libipt, Intel's decoder, and leave to it what
//! occurs rarely ([`decode::By`]); records of the container are parsed by `linux-perf-data`. Times
//! are perf's, in ns, as the recorded kernel converts them from the time-stamp counter.
//!
//! The method is that of NSight (NSDI'22) §4.1 and §5.1. It has not run on a machine with Intel PT: it was tested on recordings
//! made elsewhere, and on encoded executions whose time is assigned and not measured (docs/intel-pt.md).
//!
//! # Alone
//!
//! A program that has nothing else of Tailsight reads a recording with it:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use tailsight_pt::{Places, Recording, What};
//!
//! let recording = Recording::open(Path::new("perf.data"), &Places::default())?;
//! let (mut entered, mut gaps) = (vec![], 0);
//! let summary = recording.decode(None, |event| match event.what {
//!     What::Enter(function, _) => entered.push((event.ns, event.cpu, event.tid, function)),
//!     What::Gap(_) => gaps += 1,
//!     _ => {}
//! })?;
//! let first = entered.first().map(|&(ns, .., function)| (ns, &summary.functions[function as usize].function));
//! assert!(first.is_some() || gaps > 0);
//! # Ok::<(), tailsight_pt::Error>(())
//! ```
//!
//! Of the workspace it needs tailsight-symbolise, which names functions, tailsight-trace, which [`import`] writes a run with,
//! tailsight-output, which opens files of others, and tailsight-units, which makes text of names that are none. Names are read in a process
//! without rights if the program calls `tailsight_symbolise::reader::start_readers_if_asked` first, else in threads of its own.

mod ahead;
mod blocks;
pub mod container;
pub mod decode;
pub mod error;
mod gap;
pub mod import;
pub mod index;
pub mod memory;
mod moves;
pub mod recording;
pub mod script;
pub mod sideband;
mod spaces;
pub mod stacks;
mod switches;
pub mod symbols;

pub use decode::By;
pub use error::Error;
pub use gap::Gap;
pub use import::{Imported, Timeline};
pub use memory::Places;
pub use recording::{Recording, Summary, Window};
pub use script::Script;
pub use stacks::{Entry, Event, What};
