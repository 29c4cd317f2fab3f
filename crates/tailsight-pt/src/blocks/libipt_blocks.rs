//! Intel's block decoder.
//!
//! It is called without its Rust binding (libipt 0.4), which drops a block that ends in an error, with the instructions up to there, and
//! panics at classes that libipt 2.1 has and it does not know.

use std::ffi::c_int;
use std::mem::{MaybeUninit, size_of};
use std::ops::Range;
use std::ptr::NonNull;

use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::EncoderDecoderBuilder;
use libipt::error::{PtError, PtErrorCode};
use libipt::insn::Class;
use libipt_sys as sys;

use super::images::Mode;
use super::{Block, Blocks, Happening, Lost, TimedHappening};
use crate::spaces::Spaces;

/// See the module.
pub struct Libipt {
    decoder: NonNull<sys::pt_block_decoder>,
    /// What the last block, which was given, ended in.
    ended: Option<PtError>,
    /// How the processor reads instructions, as the trace says.
    mode: Mode,
    /// The address space, once one is known.
    space: Option<usize>,
    /// What the decoder reads code from: of which space and mode.
    image: Option<(usize, Mode)>,
}

impl Libipt {
    /// Of the trace that the builder has, which must live as long as this.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn new(builder: EncoderDecoderBuilder<BlockDecoder<'_>>) -> Result<Libipt, PtError> {
        // A tail call is a jump: without this, the functions that several of them go through in one block are not told.
        let builder = builder.set_end_on_call(true).set_end_on_jump(true);
        // SAFETY: the builder is a transparent wrapper of this structure; the decoder copies it.
        let decoder = unsafe { sys::pt_blk_alloc_decoder(std::ptr::from_ref(&builder).cast()) };
        let decoder = NonNull::new(decoder).ok_or(PtErrorCode::BadConfig)?;
        Ok(Libipt { decoder, ended: None, mode: Mode::Unknown, space: None, image: None })
    }

    /// The decoder reads the code of this space, in this mode.
    fn set_image(&mut self, spaces: &mut Spaces<'_>) {
        let Some(space) = self.space.filter(|space| self.image != Some((*space, self.mode))) else { return };
        let Some(image) = spaces.image(space, self.mode) else { return };
        // SAFETY: both live, the image as long as `spaces`, which outlives the decoder.
        unsafe { sys::pt_blk_set_image(self.decoder.as_ptr(), image.as_ptr()) };
        self.image = Some((space, self.mode));
    }
}

/// What a function of libipt returned: whether an event is told next, or an error.
fn pending(code: c_int) -> Result<bool, PtError> {
    match u32::try_from(code) {
        Ok(status) => Ok(status & sys::pt_status_flag_pts_event_pending != 0),
        Err(_) => Err(PtErrorCode::try_from(-code).unwrap_or(PtErrorCode::Internal).into()),
    }
}

impl Blocks for Libipt {
    fn synchronise(&mut self) -> Result<bool, Lost> {
        (self.ended, self.mode) = (None, Mode::Unknown);
        // SAFETY: the decoder lives.
        Ok(pending(unsafe { sys::pt_blk_sync_forward(self.decoder.as_ptr()) })?)
    }

    fn told(&mut self, spaces: &mut Spaces<'_>) -> Result<(TimedHappening, bool), Lost> {
        let mut event = MaybeUninit::<sys::pt_event>::zeroed();
        // SAFETY: the decoder lives; it writes one event of this size.
        let code = unsafe { sys::pt_blk_event(self.decoder.as_ptr(), event.as_mut_ptr(), size_of::<sys::pt_event>()) };
        let more = pending(code)?;
        // SAFETY: it is of plain numbers.
        let event = unsafe { event.assume_init() };
        let variant = &event.variant;
        if event.type_ == sys::pt_event_type_ptev_exec_mode {
            // SAFETY: which part of the union holds is told by the type.
            self.mode = Mode::of(unsafe { variant.exec_mode.mode });
            self.set_image(spaces);
        }
        // SAFETY: which part of the union holds is told by the type.
        let what = unsafe {
            match event.type_ {
                sys::pt_event_type_ptev_enabled => Happening::Enabled { ip: variant.enabled.ip },
                sys::pt_event_type_ptev_disabled => Happening::Disabled,
                sys::pt_event_type_ptev_async_disabled => Happening::DisabledAt { ip: variant.async_disabled.at },
                sys::pt_event_type_ptev_async_branch => {
                    Happening::Interrupted { from: variant.async_branch.from, to: variant.async_branch.to }
                }
                sys::pt_event_type_ptev_overflow => Happening::Overflow,
                _ => Happening::Other,
            }
        };
        let tsc = (event.has_tsc() != 0).then_some(event.tsc);
        Ok((TimedHappening { tsc, status: event.status_update() != 0, what }, more))
    }

    fn block(&mut self, spaces: &mut Spaces<'_>, _: &Range<u64>) -> Result<(Block, bool), Lost> {
        if let Some(error) = self.ended.take() {
            return Err(error.into());
        }
        self.set_image(spaces);
        let mut raw = MaybeUninit::<sys::pt_block>::zeroed();
        // SAFETY: the decoder lives; it writes one block of this size, also where it returns an error.
        let code = unsafe { sys::pt_blk_next(self.decoder.as_ptr(), raw.as_mut_ptr(), size_of::<sys::pt_block>()) };
        // SAFETY: it is of plain numbers.
        let raw = unsafe { raw.assume_init() };
        let more = match pending(code) {
            Err(error) if raw.ninsn > 0 => {
                self.ended = Some(error);
                false
            }
            other => other?,
        };
        // An indirect jump of any kind is not among the classes that its crate knows.
        #[allow(clippy::unnecessary_cast, reason = "the type of C enumerations differs between platforms")]
        let class = Class::try_from(raw.iclass as u32).ok();
        Ok((Block { ip: raw.ip, end: raw.end_ip, instructions: u64::from(raw.ninsn), class }, more))
    }

    fn ip(&self) -> Option<u64> {
        None
    }

    fn time(&mut self) -> Option<u64> {
        let (mut tsc, mut mtc, mut cyc) = (0, 0, 0);
        // SAFETY: the decoder lives; it writes one number to each.
        let code = unsafe { sys::pt_blk_time(self.decoder.as_ptr(), &raw mut tsc, &raw mut mtc, &raw mut cyc) };
        // Before the first TSC packet libipt 2.1 says a counter of all ones.
        (code >= 0 && tsc != u64::MAX).then_some(tsc)
    }

    fn offset(&self) -> Option<u64> {
        let mut at = 0;
        // SAFETY: the decoder lives; it writes one number.
        let code = unsafe { sys::pt_blk_get_offset(self.decoder.as_ptr(), &raw mut at) };
        (code >= 0).then_some(at)
    }

    fn look_into(&mut self, spaces: &mut Spaces<'_>, space: usize) {
        self.space = Some(space);
        // Behind a synchronisation point the mode is told next.
        if self.mode != Mode::Unknown {
            self.set_image(spaces);
        }
    }
}

impl Drop for Libipt {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once.
        unsafe { sys::pt_blk_free_decoder(self.decoder.as_ptr()) }
    }
}
