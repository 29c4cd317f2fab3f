//! Breakpoints at the functions through which plain text goes into TLS and comes out: of libraries that the target has mapped, or that its
//! program is linked with.
//!
//! In: the processes of the target. Out: [`TlsPlan`], before anything is loaded; then [`TlsBreakpoints`], while the recording runs. At most a
//! quarter of a core may go to them: beyond that they are taken away.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use tailsight_symbolise::functions::Wanted;
use tailsight_symbolise::functions::emulated::is_emulated;
use tailsight_symbolise::reader::Reader;
use tailsight_symbolise::reader::protocol::{About, FileId};
use tailsight_trace::meta;

use super::traced::{Binary, UNMEASURED_PER_SECOND, binaries, code_at, program_of};
use crate::loaded::Loaded;
use crate::probes::functions::{Place, Tracer, TrapNs, trap_ns};
use crate::probes::tls::{self, PROGRAM, cookie};

/// The part of a core that the breakpoints may take. A server calls these functions three times a request and more, and without them there is no
/// request: it is more than a function of `--uprobe` may take.
const SHARE_OF_CORE: f64 = 0.25;
/// The file, as the reader knows it.
const ITSELF: FileId = FileId::MAX;
/// Libraries by the beginning of their names: OpenSSL, LibreSSL and BoringSSL; GnuTLS.
const LIBRARIES: [&str; 2] = ["libssl", "libgnutls"];
/// Their functions, and what each does.
const FUNCTIONS: [(&str, u64); 6] = [
    ("SSL_read", 0),
    ("SSL_read_ex", cookie::COUNTS),
    ("SSL_write", cookie::OUT),
    ("SSL_write_ex", cookie::OUT | cookie::COUNTS),
    ("gnutls_record_recv", 0),
    ("gnutls_record_send", cookie::OUT),
];

/// Go's own functions, and where each of them has given or taken plain text: at a call of the function beside it, or behind that.
const GO_FUNCTIONS: [(&str, &str, u64); 2] = [
    ("crypto/tls.(*Conn).Read", "runtime.memmove", cookie::GO),
    ("crypto/tls.(*Conn).Write", "crypto/tls.(*Conn).writeRecordLocked", cookie::GO | cookie::OUT),
];

/// Places for breakpoints.
#[derive(Debug, Default)]
pub(super) struct TlsPlan {
    places: Vec<Place>,
    /// The files that have functions of TLS, by name.
    files: BTreeSet<String>,
}

impl TlsPlan {
    /// Looks for them in the libraries that these processes have mapped and in the programs that they run, or in the program that the recording
    /// will start.
    pub(super) fn new(pids: &[u32], command: Option<&str>, reader: &mut Reader) -> TlsPlan {
        let mut plan = TlsPlan::default();
        let mut looked_into = BTreeSet::new();
        let programs: BTreeSet<String> = pids.iter().copied().filter_map(program_of).collect();
        let names = LIBRARIES.into_iter().chain(programs.iter().map(String::as_str)).chain(command);
        for binary in names.filter_map(|name| binaries(name, pids, command).ok()).flatten() {
            let Ok(about) = binary.file.metadata() else { continue };
            if looked_into.insert((about.dev(), about.ino())) {
                plan.look_into(&binary, reader);
            }
        }
        plan
    }

    fn look_into(&mut self, binary: &Binary, reader: &mut Reader) {
        let Ok(file) = binary.file.try_clone() else { return };
        reader.give(ITSELF, file, None, About { is_program: true, ..About::default() });
        let names = FUNCTIONS.iter().map(|&(name, _)| name.to_owned()).collect();
        let located = reader.functions(ITSELF, None, &Wanted::Library(names)).unwrap_or_default();
        self.look_for_go(binary, reader);
        reader.take_back(ITSELF);
        for function in &located.functions {
            let what = FUNCTIONS.iter().find(|(name, _)| *name == function.name);
            let (Some(&(_, cookie)), Some(&(offset, _))) = (what, function.begins.first()) else { continue };
            self.files.insert(binary.name.clone());
            // The end first: a call whose end is not watched yet would stay open.
            for (at_return, cookie) in [(true, cookie | cookie::RETURNS), (false, cookie)] {
                self.places.push(place(binary, offset, at_return, cookie));
            }
        }
    }

    /// Where a program of Go reads and writes, which the reader has; nothing where a program has not both.
    fn look_for_go(&mut self, binary: &Binary, reader: &mut Reader) {
        let mut offsets = |wanted: Wanted| -> Vec<u64> {
            let located = reader.functions(ITSELF, None, &wanted).unwrap_or_default();
            located.functions.iter().flat_map(|function| &function.begins).map(|&(offset, _)| offset).collect()
        };
        let mut places = vec![];
        for (function, callee, cookie) in GO_FUNCTIONS {
            let (caller, callee) = (function.to_owned(), callee.to_owned());
            let ends = offsets(Wanted::GoCall { caller, callee, after: cookie & cookie::OUT != 0 });
            let begins = offsets(Wanted::Go(vec![function.to_owned()]));
            if ends.is_empty() || begins.is_empty() {
                return;
            }
            places.extend(ends.into_iter().map(|offset| place(binary, offset, false, cookie | cookie::RETURNS)));
            places.extend(begins.into_iter().map(|offset| place(binary, offset, false, cookie)));
        }
        self.files.insert(binary.name.clone());
        self.places.append(&mut places);
    }

    /// Whether there is nothing to set.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// A place of a file.
fn place(binary: &Binary, offset: u64, at_return: bool, cookie: u64) -> Place {
    Place {
        function: None,
        file: binary.path.clone(),
        offset,
        semaphore: 0,
        at_return,
        cookie,
        emulated: at_return || is_emulated(&code_at(&binary.file, offset)),
    }
}

/// What the traps of a call take: one at its begin, one at its end.
fn call_ns(trap: TrapNs, places: &[Place]) -> f64 {
    let are_emulated = places.iter().all(|place| place.emulated);
    trap.emulated + if are_emulated { trap.emulated } else { trap.stepped }
}

/// Breakpoints that are set.
pub(super) struct TlsBreakpoints {
    tracer: Tracer,
    said: meta::Tls,
    /// What the traps of a call take, ns; without the program.
    trap_ns: Option<f64>,
}

impl TlsBreakpoints {
    /// Sets them; nothing where there are none. What the kernel refuses is a warning, and the recording goes on.
    pub(super) fn set(loaded: &mut Loaded, plan: TlsPlan, warnings: &mut Vec<String>) -> Option<TlsBreakpoints> {
        if plan.is_empty() {
            return None;
        }
        let TlsPlan { places, files } = plan;
        let trap_ns = trap_ns(loaded, PROGRAM).map(|trap| call_ns(trap, &places));
        let most_per_second = trap_ns.map_or(UNMEASURED_PER_SECOND, |ns| (SHARE_OF_CORE * 1e9 / ns.max(100.0)) as u32);
        tls::limit_calls(loaded, most_per_second);
        let mut tracer = Tracer::default();
        if let Err((_, why)) = tracer.set(loaded, PROGRAM, &places) {
            warnings.push(format!("the plain text of TLS is not read: {why}"));
            return None;
        }
        let said = meta::Tls {
            files: files.into_iter().collect(),
            places: places.len() as u64,
            most_per_second: u64::from(most_per_second),
            ..meta::Tls::default()
        };
        Some(TlsBreakpoints { tracer, said, trap_ns })
    }

    /// Takes them away if they are off because there were too many calls: until then each takes the traps.
    pub(super) fn look(&mut self, loaded: &Loaded) {
        let (calls, off_ns) = tls::calls(loaded);
        self.said.calls = calls;
        if off_ns.is_some() && self.said.off_ns.is_none() {
            self.said.off_ns = off_ns;
            self.tracer.clear();
        }
    }

    /// Takes all away: the recording is over.
    pub(super) fn take_away(&mut self) {
        self.tracer.clear();
    }

    /// What run.json says, and what a reader has to know. `program_ns`: the program's cost, as measured.
    pub(super) fn finish(mut self, program_ns: Option<f64>, start_ns: u64) -> (meta::Tls, Option<String>) {
        self.said.call_ns = self.trap_ns.map(|ns| ns + 2.0 * program_ns.unwrap_or_default());
        let warning = self.said.off_ns.map(|off_ns| {
            format!(
                "the plain text of TLS was read for the first {:.1} s only: its functions were called more than {} times a second",
                off_ns.saturating_sub(start_ns) as f64 / 1e9,
                self.said.most_per_second
            )
        });
        (self.said, warning)
    }
}
