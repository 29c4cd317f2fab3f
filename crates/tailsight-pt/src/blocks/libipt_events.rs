//! Intel's event decoder.

use std::ffi::c_int;
use std::mem::{MaybeUninit, size_of};
use std::ptr::NonNull;

use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::EncoderDecoderBuilder;
use libipt::error::{PtError, PtErrorCode};
use libipt_sys as sys;

use super::events::{Event, Events, Over, What};

/// See the module.
pub struct LibiptEvents(NonNull<sys::pt_event_decoder>);

impl LibiptEvents {
    /// Of the trace that the builder has, which must live as long as this.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn new(builder: &EncoderDecoderBuilder<BlockDecoder<'_>>) -> Result<LibiptEvents, PtError> {
        // SAFETY: the builder is a transparent wrapper of this structure; the decoder copies it.
        let events = unsafe { sys::pt_evt_alloc_decoder(std::ptr::from_ref(builder).cast()) };
        Ok(LibiptEvents(NonNull::new(events).ok_or(PtErrorCode::BadConfig)?))
    }
}

fn over(code: c_int) -> Over {
    if code == -(sys::pt_error_code_pte_eos as c_int) { Over::End } else { Over::NotHere }
}

impl Events for LibiptEvents {
    fn synchronise(&mut self) -> Result<(), Over> {
        // SAFETY: the decoder lives.
        let code = unsafe { sys::pt_evt_sync_forward(self.0.as_ptr()) };
        if code < 0 { Err(over(code)) } else { Ok(()) }
    }

    fn next(&mut self, out: &mut Event) -> Result<(), Over> {
        let mut event = MaybeUninit::<sys::pt_event>::uninit();
        // SAFETY: the decoder lives; it writes a whole event where it returns no error.
        let code = unsafe { sys::pt_evt_next(self.0.as_ptr(), event.as_mut_ptr(), size_of::<sys::pt_event>()) };
        if code < 0 {
            return Err(over(code));
        }
        // SAFETY: as above.
        let event = unsafe { event.assume_init() };
        *out = Event {
            what: what(&event),
            tsc: event.tsc,
            has_tsc: event.has_tsc() != 0,
            status: event.status_update() != 0,
        };
        Ok(())
    }

    fn offset(&self) -> Option<u64> {
        let mut at = 0;
        // SAFETY: the decoder lives; it writes one number.
        let code = unsafe { sys::pt_evt_get_offset(self.0.as_ptr(), &raw mut at) };
        (code >= 0).then_some(at)
    }
}

impl Drop for LibiptEvents {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once.
        unsafe { sys::pt_evt_free_decoder(self.0.as_ptr()) }
    }
}

fn what(event: &sys::pt_event) -> What {
    let variant = &event.variant;
    let place = |ip: u64| (event.ip_suppressed() == 0).then_some(ip);
    // SAFETY: which part of the union holds is told by the type.
    unsafe {
        match event.type_ {
            sys::pt_event_type_ptev_tnt => What::Taken { bits: variant.tnt.bits, count: variant.tnt.size },
            sys::pt_event_type_ptev_tip => What::Target(place(variant.tip.ip)),
            sys::pt_event_type_ptev_enabled => What::Enabled(place(variant.enabled.ip)),
            sys::pt_event_type_ptev_disabled => What::Disabled(place(variant.disabled.ip)),
            sys::pt_event_type_ptev_async_disabled => What::DisabledAt(variant.async_disabled.at),
            sys::pt_event_type_ptev_async_branch => {
                What::Branch { from: variant.async_branch.from, to: place(variant.async_branch.to) }
            }
            sys::pt_event_type_ptev_paging => What::Paging,
            sys::pt_event_type_ptev_async_paging => What::PagingAt(place(variant.async_paging.ip)),
            sys::pt_event_type_ptev_overflow => What::Overflow(place(variant.overflow.ip)),
            sys::pt_event_type_ptev_exec_mode => {
                let long = variant.exec_mode.mode == sys::pt_exec_mode_ptem_64bit;
                What::Mode(long, place(variant.exec_mode.ip))
            }
            sys::pt_event_type_ptev_tsx => What::Transaction(variant.tsx.aborted() != 0, place(variant.tsx.ip)),
            sys::pt_event_type_ptev_async_vmcs => What::MachineAt(place(variant.async_vmcs.ip)),
            sys::pt_event_type_ptev_stop => What::Stop,
            sys::pt_event_type_ptev_cbr => What::Frequency,
            _ => What::Other,
        }
    }
}
