//! Intel's block decoder.

use std::ops::Range;

use libipt::block::{Block as Raw, BlockDecoder};
use libipt::enc_dec_builder::{EncoderDecoderBuilder, PtEncoderDecoder};
use libipt::error::PtError;
use libipt::event::EventType;
use libipt::insn::Class;

use super::{Block, Blocks, Happening, Lost, Told};
use crate::spaces::Spaces;

/// See the module.
pub struct Libipt<'a>(BlockDecoder<'a>);

impl<'a> Libipt<'a> {
    /// Of the trace that the builder has, which must live as long as this.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn new(builder: EncoderDecoderBuilder<BlockDecoder<'a>>) -> Result<Self, PtError> {
        // A tail call is a jump: without this, the functions that several of them go through in one block are not told.
        let builder = builder.set_end_on_call(true).set_end_on_jump(true);
        Ok(Libipt(BlockDecoder::new_from_builder(&builder)?))
    }
}

/// The class of a block's last instruction; `None`: an indirect jump of any kind, which libipt 2.1 tells and the class of its crate
/// does not know (it panics).
fn class_of(block: &Raw) -> Option<Class> {
    // SAFETY: `Block` is a transparent wrapper of this structure of plain numbers.
    let raw: &libipt_sys::pt_block = unsafe { &*std::ptr::from_ref(block).cast() };
    #[allow(clippy::unnecessary_cast, reason = "the type of C enumerations differs between platforms")]
    Class::try_from(raw.iclass as u32).ok()
}

impl Blocks for Libipt<'_> {
    fn synchronise(&mut self) -> Result<bool, Lost> {
        Ok(self.0.sync_forward()?.event_pending())
    }

    fn told(&mut self, _: &mut Spaces<'_>) -> Result<(Told, bool), Lost> {
        let (event, status) = self.0.event()?;
        let what = match event.event_type() {
            EventType::Enabled(e) => Happening::Enabled { ip: e.ip() },
            EventType::Disabled(_) => Happening::Disabled,
            EventType::AsnycDisabled(e) => Happening::DisabledAt { ip: e.at() },
            EventType::AsyncBranch(e) => Happening::Interrupted { from: e.from(), to: e.to() },
            EventType::Overflow(_) => Happening::Overflow,
            _ => Happening::Other,
        };
        Ok((Told { tsc: event.tsc(), status: event.status_update(), what }, status.event_pending()))
    }

    fn block(&mut self, _: &mut Spaces<'_>, _: &Range<u64>) -> Result<(Block, bool), Lost> {
        let (raw, status) = self.0.decode_next()?;
        let class = class_of(&raw);
        let block = Block { ip: raw.ip(), end: raw.end_ip(), instructions: u64::from(raw.ninsn()), class };
        Ok((block, status.event_pending()))
    }

    fn ip(&self) -> Option<u64> {
        None
    }

    fn time(&mut self) -> Option<u64> {
        // Before the first TSC packet libipt 2.1 says a counter of all ones.
        self.0.time().ok().map(|(tsc, ..)| tsc).filter(|tsc| *tsc != u64::MAX)
    }

    fn offset(&self) -> Option<u64> {
        self.0.offset().ok()
    }

    fn look_into(&mut self, spaces: &mut Spaces<'_>, space: usize) {
        let Some(image) = spaces.image(space) else { return };
        // SAFETY: the image lives as long as `spaces`, which outlives the decoder; the decoder has no other reference to it that it
        // uses: the one before is replaced.
        let _ = self.0.set_image(Some(unsafe { &mut *image.as_ptr() }));
    }
}
