//! A run that is whole is opened again, to replace its tables of samples.
//!
//! In: the run's directory and description. Out: a [`RunWriter`] that goes on with the checksums that are there; its
//! [`RunWriter::finish`] lists all files again. Until then a run with a replaced table opens as changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{EVENTS, Folder, RunWriter};
use crate::error::Error;
use crate::meta::RunMeta;
use crate::seal::{self, Sealer};

impl RunWriter {
    /// Opens the run in `dir` for [`RunWriter::samples`]. `meta`: as it was read.
    ///
    /// # Errors
    /// [`Error::SharedOutput`] when another user can write to it; [`Error::Write`].
    pub fn reopen(dir: &Path, meta: &RunMeta) -> Result<RunWriter, Error> {
        let failed = |e| Error::write(dir, e);
        let folder = Folder::open_or_make(dir).map_err(failed)?;
        if let Some(why) = folder.why_shared().map_err(failed)? {
            return Err(Error::SharedOutput { path: dir.into(), why });
        }
        let events = folder.folder(Path::new(EVENTS)).map_err(|e| Error::write(dir.join(EVENTS), e))?;
        let sealer = Sealer::resume(&folder, &meta.files).map_err(|e| Error::write(dir.join(seal::LOG), e))?;
        let sealer = Arc::new(Mutex::new(sealer));
        Ok(RunWriter { folder, events, sealer, streams: BTreeMap::new(), broken: BTreeMap::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::meta::{Cpu, Sampling, State};
    use crate::samples::{FrameRow, SampleRow, Samples};
    use crate::{FORMAT_VERSION, Run};

    /// Events and other tables stay as they are, and all of it is whole by its checksums.
    #[test]
    fn names_of_functions_are_replaced_in_a_run_that_stays_whole() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("run");
        let mut meta = RunMeta {
            format: "tailsight-run".into(),
            version: FORMAT_VERSION,
            sampling: Some(Sampling { samples: 1, ..Sampling::default() }),
            cpus: vec![Cpu { cpu: 0, events: 1, lost: 0 }],
            ..RunMeta::default()
        };
        let mut writer = RunWriter::create(&dir, &meta).unwrap();
        writer.events(0, &[Event { ts: 7, kind: 1, ..Event::default() }]).unwrap();
        writer.tasks(&[]).unwrap();
        writer.sockets(&[]).unwrap();
        writer.clocks(&[]).unwrap();
        let frame = FrameRow { module: "server".into(), offset: 16, ..FrameRow::default() };
        let mut samples = Samples { rows: vec![SampleRow::default()], stacks: vec![vec![0]], frames: vec![frame] };
        writer.samples(&samples).unwrap();
        meta.state = State::Complete;
        writer.finish(&mut meta).unwrap();

        for name in ["look_up", "a_function_with_a_longer_name_than_before"] {
            let before = Run::open(&dir).unwrap();
            assert_eq!(before.partial, [""; 0]);
            samples.frames[0].function = name.into();
            let mut meta = before.meta.clone();
            let writer = RunWriter::reopen(&dir, &meta).unwrap();
            writer.samples(&samples).unwrap();
            writer.finish(&mut meta).unwrap();
            let mut after = Run::open(&dir).unwrap();
            assert_eq!(
                (after.partial.len(), after.samples.frames[0].function.as_str()),
                (0, name),
                "{:?}",
                after.partial
            );
            assert_eq!(after.events().unwrap()[0].events[0].ts, 7);
            assert_eq!(after.partial, [""; 0]);
        }
        // A change that nobody wrote so is still found.
        let table = dir.join("sample_frames.arrow");
        let mut bytes = std::fs::read(&table).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(&table, bytes).unwrap();
        assert!(!Run::open(&dir).unwrap().partial.is_empty());
    }
}
