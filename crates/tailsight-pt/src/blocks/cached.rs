//! Intel's event decoder, and blocks of code that are known.
//!
//! What binds to which instruction follows libipt's block decoder (`pt_block_decoder.c`, version 2.1), for the events that occur all the
//! time.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem::size_of;
use std::ops::Range;
use std::ptr::NonNull;

use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::EncoderDecoderBuilder;
use libipt::error::{PtError, PtErrorCode};
use libipt::insn::Class;
use libipt_sys as sys;

use super::code::{Kind, Known};
use super::{Block, Blocks, Happening, Lost, Told};
use crate::spaces::Spaces;

/// Return addresses that are remembered for returns of one bit: as many as libipt's.
const RETURNS: usize = 64;

/// See the module.
pub struct Cached {
    events: NonNull<sys::pt_event_decoder>,
    /// The event that is next.
    event: sys::pt_event,
    /// Those behind it that were read ahead: what came of each.
    ahead: VecDeque<Result<sys::pt_event, c_int>>,
    /// Why there is no event: an error.
    over: Option<c_int>,
    ip: u64,
    /// The latest counter of an event that was used: libipt corrects its guesses, and time goes on all the same.
    tsc: Option<u64>,
    enabled: bool,
    mode: Option<sys::pt_exec_mode>,
    returns: Returns,
    space: Option<usize>,
    /// The block at `ip`, where it is known; 0: not.
    next: u32,
    /// The last instruction writes CR3, and an event bound to it.
    bound: bool,
}

/// Where calls return to, and the block that made each; a ring that forgets the oldest.
struct Returns {
    all: [(u64, u32); RETURNS + 1],
    top: usize,
    bottom: usize,
}

impl Returns {
    fn push(&mut self, ip: u64, caller: u32) {
        self.all[self.top] = (ip, caller);
        self.top = if self.top == RETURNS { 0 } else { self.top + 1 };
        if self.top == self.bottom {
            self.bottom = if self.bottom == RETURNS { 0 } else { self.bottom + 1 };
        }
    }

    fn pop(&mut self) -> Option<(u64, u32)> {
        if self.top == self.bottom {
            return None;
        }
        self.top = self.top.checked_sub(1).unwrap_or(RETURNS);
        Some(self.all[self.top])
    }

    fn clear(&mut self) {
        (self.top, self.bottom) = (0, 0);
    }

    /// Another address space: the blocks may be others.
    fn forget_callers(&mut self) {
        self.all.iter_mut().for_each(|(_, caller)| *caller = 0);
    }
}

/// Libipt's own value of an event that is not there yet.
fn none() -> sys::pt_event {
    let mut event = std::mem::MaybeUninit::<sys::pt_event>::uninit();
    // SAFETY: it is of plain numbers, for which all bits set are a value.
    unsafe {
        event.as_mut_ptr().write_bytes(0xff, 1);
        event.assume_init()
    }
}

type Pending = Result<bool, Lost>;

impl Cached {
    /// Of the trace that the builder has, which must live as long as this.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn new(builder: &EncoderDecoderBuilder<BlockDecoder<'_>>) -> Result<Cached, PtError> {
        // SAFETY: the builder is a transparent wrapper of this structure; the decoder copies it.
        let events = unsafe { sys::pt_evt_alloc_decoder(std::ptr::from_ref(builder).cast()) };
        let events = NonNull::new(events).ok_or(PtErrorCode::BadConfig)?;
        Ok(Cached {
            events,
            event: none(),
            ahead: VecDeque::new(),
            over: Some(-(sys::pt_error_code_pte_nosync as c_int)),
            ip: 0,
            tsc: None,
            enabled: false,
            mode: None,
            returns: Returns { all: [(0, 0); RETURNS + 1], top: 0, bottom: 0 },
            space: None,
            next: 0,
            bound: false,
        })
    }

    fn read(&mut self) -> Result<sys::pt_event, c_int> {
        let mut event = std::mem::MaybeUninit::<sys::pt_event>::uninit();
        // SAFETY: the decoder lives; it writes a whole event where it returns no error.
        let code = unsafe { sys::pt_evt_next(self.events.as_ptr(), event.as_mut_ptr(), size_of::<sys::pt_event>()) };
        // SAFETY: as above.
        if code < 0 { Err(code) } else { Ok(unsafe { event.assume_init() }) }
    }

    /// The event is used: on to the next one.
    fn fetch(&mut self) {
        // All ones: there was none.
        if self.event.tsc != u64::MAX {
            self.tsc = self.tsc.max(Some(self.event.tsc));
        }
        let next = if self.ahead.is_empty() { None } else { self.ahead.pop_front() };
        match next.unwrap_or_else(|| self.read()) {
            Ok(event) => self.event = event,
            Err(code) => (self.over, self.event) = (Some(code), none()),
        }
    }

    fn goes(&mut self, ip: u64, next: u32) {
        (self.ip, self.next) = (ip, next);
    }

    fn suppressed(&self) -> bool {
        self.event.ip_suppressed() != 0
    }

    fn status(&self) -> bool {
        self.event.status_update() != 0
    }

    /// Where the event is to be told: of those that are told at an instruction.
    fn place(&self) -> Option<u64> {
        let variant = &self.event.variant;
        // SAFETY: which part of the union holds is told by the type.
        unsafe {
            match self.event.type_ {
                sys::pt_event_type_ptev_async_disabled => Some(variant.async_disabled.at),
                sys::pt_event_type_ptev_async_branch => Some(variant.async_branch.from),
                sys::pt_event_type_ptev_exec_mode if !self.suppressed() => Some(variant.exec_mode.ip),
                sys::pt_event_type_ptev_tsx if !self.suppressed() => Some(variant.tsx.ip),
                sys::pt_event_type_ptev_async_paging if !self.suppressed() => Some(variant.async_paging.ip),
                sys::pt_event_type_ptev_async_vmcs if !self.suppressed() => Some(variant.async_vmcs.ip),
                _ => None,
            }
        }
    }

    /// Whether the event is told right here, behind a block or another event.
    #[inline]
    fn trailing(&mut self) -> Pending {
        // SAFETY: the type says so.
        if self.event.type_ == sys::pt_event_type_ptev_tnt && unsafe { self.event.variant.tnt.size } > 0 {
            return Ok(false);
        }
        self.trailing_event()
    }

    fn trailing_event(&mut self) -> Pending {
        loop {
            if let Some(code) = self.over {
                return Ok(!is_end(code));
            }
            return match self.event.type_ {
                sys::pt_event_type_ptev_tnt => {
                    // SAFETY: the type says so.
                    if unsafe { self.event.variant.tnt.size } > 0 {
                        return Ok(false);
                    }
                    self.fetch();
                    continue;
                }
                sys::pt_event_type_ptev_tip => Ok(false),
                // More may bind to the write of CR3.
                sys::pt_event_type_ptev_disabled | sys::pt_event_type_ptev_paging if self.bound => Err(Lost::NotHere),
                sys::pt_event_type_ptev_disabled => Ok(false),
                sys::pt_event_type_ptev_paging => Ok(!self.enabled),
                sys::pt_event_type_ptev_enabled
                | sys::pt_event_type_ptev_overflow
                | sys::pt_event_type_ptev_stop
                | sys::pt_event_type_ptev_cbr => Ok(true),
                sys::pt_event_type_ptev_exec_mode if !self.enabled => Ok(true),
                sys::pt_event_type_ptev_async_disabled
                | sys::pt_event_type_ptev_async_branch
                | sys::pt_event_type_ptev_exec_mode
                | sys::pt_event_type_ptev_async_paging
                | sys::pt_event_type_ptev_async_vmcs
                | sys::pt_event_type_ptev_tsx => Ok(self.place().is_none_or(|place| place == self.ip)),
                _ => Err(Lost::NotHere),
            };
        }
    }

    /// The number of the block at the instruction pointer.
    fn here(&mut self, spaces: &mut Spaces<'_>) -> Result<u32, Lost> {
        if self.next != 0 {
            return Ok(self.next);
        }
        let none = || Lost::Because(PtErrorCode::Nomap.into());
        if self.mode != Some(sys::pt_exec_mode_ptem_64bit) {
            return Err(Lost::NotHere);
        }
        let (code, layout) = spaces.code(self.space.ok_or_else(none)?);
        code.find(layout, self.ip).ok_or_else(none)
    }

    /// The block behind another, where it is known.
    fn behind(&self, spaces: &mut Spaces<'_>, block: u32, taken: bool) -> u32 {
        let Some(space) = self.space else { return 0 };
        let (code, layout) = spaces.code(space);
        code.follows(layout, block, taken).unwrap_or(0)
    }

    /// On to where a packet says.
    fn indirect(&mut self) -> Result<(), Lost> {
        if self.event.type_ != sys::pt_event_type_ptev_tip || self.suppressed() {
            return Err(Lost::NotHere);
        }
        // SAFETY: the type says so.
        self.goes(unsafe { self.event.variant.tip.ip }, 0);
        self.fetch();
        Ok(())
    }

    /// The next of the bits; `None`: there is none.
    fn bit(&mut self) -> Option<bool> {
        if self.event.type_ != sys::pt_event_type_ptev_tnt {
            return None;
        }
        // SAFETY: the type says so.
        let tnt = unsafe { &mut self.event.variant.tnt };
        tnt.size = tnt.size.checked_sub(1)?;
        Some((tnt.bits >> tnt.size) & 1 != 0)
    }

    /// A direct branch, or none. Whether there was one of these.
    fn direct(&mut self, spaces: &mut Spaces<'_>, number: u32) -> bool {
        let known = *spaces.block(number);
        match known.kind {
            Kind::Falls => {
                let next = self.behind(spaces, number, false);
                self.goes(known.behind, next);
            }
            Kind::Jump | Kind::Call => {
                // A call of what is behind it asks for its own address: none that is returned from.
                if known.kind == Kind::Call && known.target != known.behind {
                    self.returns.push(known.behind, number);
                }
                let next = self.behind(spaces, number, true);
                self.goes(known.target, next);
            }
            _ => return false,
        }
        true
    }

    /// Blocks with branches that the trace decides, as long as they stay in the function. Whether something is told behind them.
    fn run(&mut self, spaces: &mut Spaces<'_>, within: &Range<u64>) -> Result<(Block, bool), Lost> {
        let mut number = self.here(spaces)?;
        let first = self.ip;
        let mut instructions = 0;
        loop {
            let known = *spaces.block(number);
            let jumps = self.branch(spaces, number, &known)?;
            instructions += u64::from(known.instructions);
            let told = self.trailing()?;
            let goes_on =
                jumps && !told && self.over.is_none() && within.contains(&known.end) && within.contains(&self.ip);
            if goes_on && matches!(self.event.type_, sys::pt_event_type_ptev_tnt | sys::pt_event_type_ptev_tip) {
                // What is wrong there is told when it is next.
                if let Ok(next) = self.here(spaces)
                    && within.contains(&spaces.block(next).end)
                    && spaces.block(next).kind != Kind::Strange
                {
                    number = next;
                    continue;
                }
            }
            return Ok((Block { ip: first, instructions, ..whole(&known) }, told));
        }
    }

    /// Goes over the branch at the end of a block. Whether it was none, or a jump that is no call, return or way between user space and
    /// kernel.
    #[inline]
    fn branch(&mut self, spaces: &mut Spaces<'_>, number: u32, known: &Known) -> Result<bool, Lost> {
        match known.kind {
            Kind::Strange => return Err(Lost::NotHere),
            Kind::Conditional => {
                let taken = self.bit().ok_or(Lost::NotHere)?;
                let (ip, known) = if taken { (known.target, known.taken) } else { (known.behind, known.fallen) };
                let next = if known != 0 { known } else { self.behind(spaces, number, taken) };
                self.goes(ip, next);
                return Ok(true);
            }
            Kind::IndirectCall => {
                self.returns.push(known.behind, number);
                self.indirect()?;
            }
            Kind::Return => match self.bit() {
                Some(true) => {
                    let (ip, caller) = self.returns.pop().ok_or(Lost::NotHere)?;
                    let next = if caller == 0 { 0 } else { self.behind(spaces, caller, false) };
                    self.goes(ip, next);
                }
                Some(false) => return Err(Lost::NotHere),
                None => self.indirect()?,
            },
            Kind::Falls | Kind::Jump | Kind::Call => {
                self.direct(spaces, number);
                return Ok(known.kind != Kind::Call);
            }
            Kind::IndirectJump => {
                self.indirect()?;
                return Ok(true);
            }
            Kind::FarCall | Kind::FarReturn => self.indirect()?,
        }
        Ok(false)
    }

    /// There are no more packets: on to where they would be needed.
    fn without_trace(&mut self, spaces: &mut Spaces<'_>, code: c_int) -> Result<(Block, bool), Lost> {
        if !is_end(code) {
            return Err(Lost::NotHere);
        }
        if !self.enabled {
            return Err(end());
        }
        let number = self.here(spaces)?;
        let known = *spaces.block(number);
        match known.kind {
            Kind::Strange => Err(Lost::NotHere),
            _ if self.direct(spaces, number) => Ok((whole(&known), false)),
            _ => Err(Lost::Because(PtErrorCode::BadQuery.into())),
        }
    }

    /// On to where the event is told, without trace.
    fn towards(&mut self, spaces: &mut Spaces<'_>) -> Result<(Block, bool), Lost> {
        let empty = Block { ip: self.ip, end: 0, instructions: 0, class: Some(Class::Other) };
        match self.event.type_ {
            sys::pt_event_type_ptev_disabled if !self.status() => {
                if !self.suppressed() {
                    return Err(Lost::NotHere);
                }
                let number = self.here(spaces)?;
                let known = *spaces.block(number);
                if known.writes_cr3 || known.kind == Kind::Strange {
                    return Err(Lost::NotHere);
                }
                if known.kind == Kind::IndirectCall {
                    self.returns.push(known.behind, number);
                }
                // It is told at the first branch that would need trace.
                let told = !self.direct(spaces, number);
                Ok((whole(&known), told))
            }
            sys::pt_event_type_ptev_async_disabled
            | sys::pt_event_type_ptev_async_branch
            | sys::pt_event_type_ptev_exec_mode
            | sys::pt_event_type_ptev_async_paging
            | sys::pt_event_type_ptev_async_vmcs
            | sys::pt_event_type_ptev_tsx => {
                let Some(place) = self.place().filter(|place| *place != self.ip) else { return Ok((empty, true)) };
                let number = self.here(spaces)?;
                let known = *spaces.block(number);
                if place > known.ip && place <= known.end {
                    let (end, instructions) = spaces.before(number, place).ok_or(Lost::NotHere)?;
                    self.goes(place, 0);
                    return Ok((
                        Block { ip: known.ip, end, instructions: u64::from(instructions), class: Some(Class::Other) },
                        true,
                    ));
                }
                if !self.direct(spaces, number) {
                    return Err(Lost::NotHere);
                }
                Ok((whole(&known), self.ip == place))
            }
            sys::pt_event_type_ptev_disabled
            | sys::pt_event_type_ptev_enabled
            | sys::pt_event_type_ptev_overflow
            | sys::pt_event_type_ptev_stop
            | sys::pt_event_type_ptev_cbr => Ok((empty, true)),
            sys::pt_event_type_ptev_paging if !self.enabled => Ok((empty, true)),
            // It is told behind the instruction that writes CR3.
            sys::pt_event_type_ptev_paging => {
                let number = self.here(spaces)?;
                let known = *spaces.block(number);
                if known.writes_cr3 {
                    let (end, instructions, behind) = spaces.until_paging(number).ok_or(Lost::NotHere)?;
                    self.goes(behind, 0);
                    self.bound = true;
                    return Ok((
                        Block { ip: known.ip, end, instructions: u64::from(instructions), class: Some(Class::Other) },
                        true,
                    ));
                }
                if !self.direct(spaces, number) {
                    return Err(Lost::NotHere);
                }
                Ok((whole(&known), false))
            }
            _ => Err(Lost::NotHere),
        }
    }
}

/// All of a block.
#[inline]
fn whole(known: &Known) -> Block {
    let class = match known.kind {
        Kind::Falls | Kind::Strange => Class::Other,
        Kind::Jump | Kind::IndirectJump => Class::Jump,
        Kind::Conditional => Class::CondJump,
        Kind::Call | Kind::IndirectCall => Class::Call,
        Kind::Return => Class::Return,
        Kind::FarCall => Class::FarCall,
        Kind::FarReturn => Class::FarReturn,
    };
    Block { ip: known.ip, end: known.end, instructions: u64::from(known.instructions), class: Some(class) }
}

fn is_end(code: c_int) -> bool {
    code == -(sys::pt_error_code_pte_eos as c_int)
}

fn end() -> Lost {
    Lost::Because(PtErrorCode::Eos.into())
}

impl Blocks for Cached {
    fn synchronise(&mut self) -> Pending {
        (self.event, self.over, self.tsc, self.enabled, self.mode) = (none(), None, None, false, None);
        self.ahead.clear();
        self.bound = false;
        self.returns.clear();
        self.goes(0, 0);
        // SAFETY: the decoder lives.
        let code = unsafe { sys::pt_evt_sync_forward(self.events.as_ptr()) };
        if code < 0 {
            return Err(if is_end(code) { end() } else { Lost::NotHere });
        }
        // Where control flow is: what the synchronisation point says, before its events are told.
        let begins = self.offset();
        while self.offset() == begins {
            let event = self.read();
            self.ahead.push_back(event);
            match event {
                Err(code) if !is_end(code) => return Err(Lost::NotHere),
                Ok(event) if event.status_update() != 0 => {
                    if event.type_ == sys::pt_event_type_ptev_enabled {
                        self.enabled = true;
                        // SAFETY: the type says so.
                        self.goes(unsafe { event.variant.enabled.ip }, 0);
                        break;
                    }
                }
                _ => break,
            }
        }
        self.fetch();
        self.trailing()
    }

    fn told(&mut self, spaces: &mut Spaces<'_>) -> Result<(Told, bool), Lost> {
        if let Some(code) = self.over {
            return Err(if is_end(code) { end() } else { Lost::NotHere });
        }
        let tsc = (self.event.has_tsc() != 0).then_some(self.event.tsc);
        let status = self.status();
        let variant = self.event.variant;
        let at_its_place = self.place().is_none_or(|place| place == self.ip);
        // SAFETY: which part of the union holds is told by the type.
        let what = unsafe {
            match self.event.type_ {
                sys::pt_event_type_ptev_enabled if status => {
                    if !self.enabled {
                        return Err(Lost::NotHere);
                    }
                    Happening::Other
                }
                sys::pt_event_type_ptev_enabled => {
                    if self.enabled || self.suppressed() {
                        return Err(Lost::NotHere);
                    }
                    self.enabled = true;
                    self.goes(variant.enabled.ip, 0);
                    Happening::Enabled { ip: self.ip }
                }
                sys::pt_event_type_ptev_disabled if status => {
                    if self.enabled {
                        return Err(Lost::NotHere);
                    }
                    Happening::Other
                }
                sys::pt_event_type_ptev_disabled => {
                    if !self.enabled {
                        return Err(Lost::NotHere);
                    }
                    self.enabled = false;
                    Happening::Disabled
                }
                sys::pt_event_type_ptev_async_disabled => {
                    // Some processors tell an entry of a virtual machine so.
                    let here = self.here(spaces);
                    let machine = here.is_ok_and(|number| spaces.block(number).kind == Kind::Strange);
                    if status || !self.enabled || !at_its_place || machine {
                        return Err(Lost::NotHere);
                    }
                    self.enabled = false;
                    Happening::DisabledAt { ip: self.ip }
                }
                sys::pt_event_type_ptev_async_branch => {
                    if status || !self.enabled || !at_its_place || self.suppressed() {
                        return Err(Lost::NotHere);
                    }
                    let (from, to) = (variant.async_branch.from, variant.async_branch.to);
                    self.goes(to, 0);
                    Happening::Interrupted { from, to }
                }
                sys::pt_event_type_ptev_overflow => {
                    self.enabled = !self.suppressed();
                    self.goes(if self.enabled { variant.overflow.ip } else { 0 }, 0);
                    Happening::Overflow
                }
                sys::pt_event_type_ptev_exec_mode => {
                    let mode = variant.exec_mode.mode;
                    let other = self.mode.is_some_and(|known| known != mode);
                    if self.enabled && (!at_its_place || status && other) {
                        return Err(Lost::NotHere);
                    }
                    if other {
                        self.next = 0;
                    }
                    self.mode = Some(mode);
                    Happening::Other
                }
                sys::pt_event_type_ptev_tsx => {
                    if !at_its_place || variant.tsx.aborted() != 0 {
                        return Err(Lost::NotHere);
                    }
                    Happening::Other
                }
                sys::pt_event_type_ptev_stop => {
                    if self.enabled {
                        return Err(Lost::NotHere);
                    }
                    Happening::Other
                }
                sys::pt_event_type_ptev_cbr => Happening::Other,
                sys::pt_event_type_ptev_async_paging | sys::pt_event_type_ptev_async_vmcs if !at_its_place => {
                    return Err(Lost::NotHere);
                }
                sys::pt_event_type_ptev_paging
                | sys::pt_event_type_ptev_async_paging
                | sys::pt_event_type_ptev_async_vmcs => Happening::Other,
                _ => return Err(Lost::NotHere),
            }
        };
        self.fetch();
        Ok((Told { tsc, status, what }, self.trailing()?))
    }

    #[inline]
    fn block(&mut self, spaces: &mut Spaces<'_>, within: &Range<u64>) -> Result<(Block, bool), Lost> {
        if let Some(code) = self.over {
            return self.without_trace(spaces, code);
        }
        match self.event.type_ {
            sys::pt_event_type_ptev_tnt | sys::pt_event_type_ptev_tip => {
                if !self.enabled {
                    return Err(Lost::NotHere);
                }
                self.bound = false;
                self.run(spaces, within)
            }
            _ => {
                self.bound = false;
                self.towards(spaces)
            }
        }
    }

    #[inline]
    fn ip(&self) -> Option<u64> {
        (self.enabled && self.over.is_none()).then_some(self.ip)
    }

    #[inline]
    fn time(&mut self) -> Option<u64> {
        self.tsc
    }

    fn offset(&self) -> Option<u64> {
        let mut at = 0;
        // SAFETY: the decoder lives; it writes one number.
        let code = unsafe { sys::pt_evt_get_offset(self.events.as_ptr(), &raw mut at) };
        (code >= 0).then_some(at)
    }

    fn look_into(&mut self, _: &mut Spaces<'_>, space: usize) {
        if self.space.replace(space) != Some(space) {
            self.next = 0;
            self.returns.forget_callers();
        }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once.
        unsafe { sys::pt_evt_free_decoder(self.events.as_ptr()) }
    }
}
