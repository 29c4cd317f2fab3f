//! Events of packets, and blocks of code that are known.
//!
//! What binds to which instruction follows libipt's block decoder (`pt_block_decoder.c`, version 2.1), for the events that occur all the
//! time.

use std::collections::VecDeque;
use std::ops::Range;

use libipt::error::PtErrorCode;
use libipt::insn::Class;

use super::code::{CodeBlock, Kind};
use super::events::{Event, Events, Over, What};
use super::{Block, Blocks, Happening, Lost, TimedHappening};
use crate::spaces::Spaces;

/// Return addresses that are remembered for returns of one bit: as many as libipt's.
const RETURNS: usize = 64;

/// See the module.
pub struct Cached<E> {
    events: E,
    /// The event that is next.
    event: Event,
    /// Those behind it that were read ahead: what came of each.
    ahead: VecDeque<Result<Event, Over>>,
    /// Why there is no event.
    over: Option<Over>,
    ip: u64,
    /// The latest counter of an event that was used: libipt corrects its guesses, and time goes on all the same.
    tsc: u64,
    /// A later counter than this is no time: the packet is damaged.
    latest_tsc: u64,
    enabled: bool,
    /// Whether the code is of 64 bits; `None`: not known.
    mode: Option<bool>,
    returns: Returns,
    space: Option<usize>,
    /// The block at `ip`, where it is known; 0: not.
    next: u32,
    /// The last instruction writes CR3, and an event bound to it.
    bound: bool,
    /// The last branch needs a packet behind the last one.
    ended: bool,
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

type Pending = Result<bool, Lost>;

impl<E: Events> Cached<E> {
    /// Of the trace that the reader of packets reads; `latest_tsc`: as [`Setting`](crate::decode::Setting) has it.
    pub fn new(events: E, latest_tsc: u64) -> Cached<E> {
        Cached {
            events,
            event: Event::NONE,
            ahead: VecDeque::new(),
            over: Some(Over::NotHere),
            ip: 0,
            tsc: 0,
            latest_tsc,
            enabled: false,
            mode: None,
            returns: Returns { all: [(0, 0); RETURNS + 1], top: 0, bottom: 0 },
            space: None,
            next: 0,
            bound: false,
            ended: false,
        }
    }

    /// The event is used: on to the next one.
    #[inline]
    fn fetch(&mut self) {
        if self.event.what != What::None && self.event.tsc <= self.latest_tsc {
            self.tsc = self.tsc.max(self.event.tsc);
        }
        let next = match self.ahead.pop_front() {
            Some(read) => read.map(|event| self.event = event),
            None => self.events.next(&mut self.event),
        };
        if let Err(over) = next {
            (self.over, self.event) = (Some(over), Event::NONE);
        }
    }

    fn goes(&mut self, ip: u64, next: u32) {
        (self.ip, self.next) = (ip, next);
    }

    /// Whether the event is told right here, behind a block or another event.
    #[inline]
    fn trailing(&mut self) -> Pending {
        match self.event.what {
            What::Taken { count: 1.., .. } => Ok(false),
            _ => self.trailing_event(),
        }
    }

    fn trailing_event(&mut self) -> Pending {
        loop {
            if let Some(over) = self.over {
                return Ok(over != Over::End);
            }
            return match self.event.what {
                What::Taken { count: 1.., .. } | What::Target(_) => Ok(false),
                What::Taken { .. } => {
                    self.fetch();
                    continue;
                }
                // More may bind to the write of CR3.
                What::Disabled(_) | What::Paging if self.bound => Err(Lost::NotHere),
                What::Disabled(_) => Ok(false),
                What::Paging => Ok(!self.enabled),
                What::Enabled(_) | What::Overflow(_) | What::Stop | What::Frequency => Ok(true),
                What::Mode(..) if !self.enabled => Ok(true),
                What::DisabledAt(_)
                | What::Branch { .. }
                | What::Mode(..)
                | What::PagingAt(_)
                | What::MachineAt(_)
                | What::Transaction(..) => Ok(self.is_here()),
                What::Other | What::None => Err(Lost::NotHere),
            };
        }
    }

    /// Whether the event is told at the instruction pointer, or at none.
    fn is_here(&self) -> bool {
        self.event.place().is_none_or(|place| place == self.ip)
    }

    /// Whether what is at the instruction pointer is not followed here. Some processors tell an entry of a virtual machine as the end of tracing.
    fn at_strange_code(&mut self, spaces: &mut Spaces<'_>) -> bool {
        self.here(spaces).is_ok_and(|number| spaces.block(number).kind == Kind::Strange)
    }

    /// The number of the block at the instruction pointer.
    fn here(&mut self, spaces: &mut Spaces<'_>) -> Result<u32, Lost> {
        if self.next != 0 {
            return Ok(self.next);
        }
        let none = || Lost::Because(PtErrorCode::Nomap.into());
        if self.mode != Some(true) {
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
    #[inline]
    fn indirect(&mut self) -> Result<(), Lost> {
        let What::Target(Some(ip)) = self.event.what else { return Err(Lost::NotHere) };
        self.goes(ip, 0);
        self.fetch();
        Ok(())
    }

    /// The next of the bits; `None`: there is none.
    #[inline]
    fn bit(&mut self) -> Option<bool> {
        let What::Taken { bits, count } = &mut self.event.what else { return None };
        *count = count.checked_sub(1)?;
        Some((*bits >> *count) & 1 != 0)
    }

    /// A direct branch, or none. Whether there was one of these.
    fn direct(&mut self, spaces: &mut Spaces<'_>, number: u32) -> bool {
        let block = *spaces.block(number);
        match block.kind {
            Kind::Falls => {
                let next = self.behind(spaces, number, false);
                self.goes(block.behind, next);
            }
            Kind::Jump | Kind::Call => {
                // A call of what is behind it asks for its own address: none that is returned from.
                if block.kind == Kind::Call && block.target != block.behind {
                    self.returns.push(block.behind, number);
                }
                let next = self.behind(spaces, number, true);
                self.goes(block.target, next);
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
            let block = *spaces.block(number);
            let jumps = self.branch(spaces, number, &block)?;
            instructions += u64::from(block.instructions);
            let has_event = self.trailing()?;
            let goes_on =
                jumps && !has_event && self.over.is_none() && within.contains(&block.end) && within.contains(&self.ip);
            if goes_on && matches!(self.event.what, What::Taken { .. } | What::Target(_)) {
                // What is wrong there is told when it is next.
                if let Ok(next) = self.here(spaces)
                    && within.contains(&spaces.block(next).end)
                    && spaces.block(next).kind != Kind::Strange
                {
                    number = next;
                    continue;
                }
            }
            return Ok((Block { ip: first, instructions, ..whole(&block) }, has_event));
        }
    }

    /// Goes over the branch at the end of a block. Whether it was none, or a jump that is no call, return or way between user space and
    /// kernel.
    #[inline]
    fn branch(&mut self, spaces: &mut Spaces<'_>, number: u32, block: &CodeBlock) -> Result<bool, Lost> {
        match block.kind {
            Kind::Strange => return Err(Lost::NotHere),
            Kind::Conditional => {
                let taken = self.bit().ok_or(Lost::NotHere)?;
                let (ip, next_block) = if taken { (block.target, block.taken) } else { (block.behind, block.fallen) };
                let next = if next_block != 0 { next_block } else { self.behind(spaces, number, taken) };
                self.goes(ip, next);
                return Ok(true);
            }
            Kind::IndirectCall => {
                self.returns.push(block.behind, number);
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
                return Ok(block.kind != Kind::Call);
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
    fn without_trace(&mut self, spaces: &mut Spaces<'_>, over: Over) -> Result<(Block, bool), Lost> {
        if over != Over::End || !self.enabled {
            return Err(over.into());
        }
        if self.ended {
            return Err(Lost::Because(PtErrorCode::BadQuery.into()));
        }
        let number = self.here(spaces)?;
        let block = *spaces.block(number);
        if block.kind == Kind::Strange {
            return Err(Lost::NotHere);
        }
        self.ended = !self.direct(spaces, number);
        Ok((whole(&block), false))
    }

    /// On to where the event is told, without trace.
    fn towards(&mut self, spaces: &mut Spaces<'_>) -> Result<(Block, bool), Lost> {
        let empty = Block { ip: self.ip, end: 0, instructions: 0, class: Some(Class::Other) };
        match self.event.what {
            What::Disabled(Some(_)) if !self.event.status => Err(Lost::NotHere),
            What::Disabled(None) if !self.event.status => {
                let number = self.here(spaces)?;
                let block = *spaces.block(number);
                if block.writes_cr3 || block.kind == Kind::Strange {
                    return Err(Lost::NotHere);
                }
                if block.kind == Kind::IndirectCall {
                    self.returns.push(block.behind, number);
                }
                // It is told at the first branch that would need trace.
                let has_event = !self.direct(spaces, number);
                Ok((whole(&block), has_event))
            }
            What::DisabledAt(_)
            | What::Branch { .. }
            | What::Mode(..)
            | What::PagingAt(_)
            | What::MachineAt(_)
            | What::Transaction(..) => {
                let Some(place) = self.event.place().filter(|place| *place != self.ip) else {
                    return Ok((empty, true));
                };
                let number = self.here(spaces)?;
                let block = *spaces.block(number);
                if place > block.ip && place <= block.end {
                    let (end, instructions) = spaces.before(number, place).ok_or(Lost::NotHere)?;
                    self.goes(place, 0);
                    return Ok((
                        Block { ip: block.ip, end, instructions: u64::from(instructions), class: Some(Class::Other) },
                        true,
                    ));
                }
                if !self.direct(spaces, number) {
                    return Err(Lost::NotHere);
                }
                Ok((whole(&block), self.ip == place))
            }
            What::Disabled(_) | What::Enabled(_) | What::Overflow(_) | What::Stop | What::Frequency => {
                Ok((empty, true))
            }
            What::Paging if !self.enabled => Ok((empty, true)),
            // It is told behind the instruction that writes CR3.
            What::Paging => {
                let number = self.here(spaces)?;
                let block = *spaces.block(number);
                if block.writes_cr3 {
                    let (end, instructions, behind) = spaces.until_paging(number).ok_or(Lost::NotHere)?;
                    self.goes(behind, 0);
                    self.bound = true;
                    return Ok((
                        Block { ip: block.ip, end, instructions: u64::from(instructions), class: Some(Class::Other) },
                        true,
                    ));
                }
                if !self.direct(spaces, number) {
                    return Err(Lost::NotHere);
                }
                Ok((whole(&block), false))
            }
            _ => Err(Lost::NotHere),
        }
    }
}

/// All of a block.
#[inline]
fn whole(block: &CodeBlock) -> Block {
    let class = match block.kind {
        Kind::Falls | Kind::Strange => Class::Other,
        Kind::Jump | Kind::IndirectJump => Class::Jump,
        Kind::Conditional => Class::CondJump,
        Kind::Call | Kind::IndirectCall => Class::Call,
        Kind::Return => Class::Return,
        Kind::FarCall => Class::FarCall,
        Kind::FarReturn => Class::FarReturn,
    };
    Block { ip: block.ip, end: block.end, instructions: u64::from(block.instructions), class: Some(class) }
}

impl From<Over> for Lost {
    fn from(over: Over) -> Lost {
        match over {
            Over::End => Lost::Because(PtErrorCode::Eos.into()),
            Over::NotHere => Lost::NotHere,
        }
    }
}

impl<E: Events> Blocks for Cached<E> {
    fn synchronise(&mut self) -> Pending {
        (self.event, self.over, self.tsc, self.enabled, self.mode) = (Event::NONE, None, 0, false, None);
        self.ahead.clear();
        (self.bound, self.ended) = (false, false);
        self.returns.clear();
        self.goes(0, 0);
        self.events.synchronise()?;
        // Where control flow is: what the synchronisation point says, before its events are told.
        let begins = self.offset();
        while self.offset() == begins {
            let mut event = Event::NONE;
            let event = self.events.next(&mut event).map(|()| event);
            self.ahead.push_back(event);
            match event {
                Err(Over::NotHere) => return Err(Lost::NotHere),
                Ok(Event { status: true, what, .. }) => {
                    if let What::Enabled(ip) = what {
                        self.enabled = true;
                        self.goes(ip.unwrap_or(0), 0);
                        break;
                    }
                }
                _ => break,
            }
        }
        self.fetch();
        self.trailing()
    }

    fn told(&mut self, spaces: &mut Spaces<'_>) -> Result<(TimedHappening, bool), Lost> {
        if let Some(over) = self.over {
            return Err(over.into());
        }
        let Event { what, tsc, has_tsc, status } = self.event;
        let here = self.is_here();
        let happening = match what {
            What::Enabled(_) if status && self.enabled => Happening::Other,
            What::Disabled(_) if status && !self.enabled => Happening::Other,
            What::Enabled(Some(ip)) if !status && !self.enabled => {
                self.enabled = true;
                self.goes(ip, 0);
                Happening::Enabled { ip }
            }
            What::Disabled(_) if !status && self.enabled => {
                self.enabled = false;
                Happening::Disabled
            }
            What::DisabledAt(_) if !status && self.enabled && here && !self.at_strange_code(spaces) => {
                self.enabled = false;
                Happening::DisabledAt { ip: self.ip }
            }
            What::Branch { from, to: Some(to) } if !status && self.enabled && here => {
                self.goes(to, 0);
                Happening::Interrupted { from, to }
            }
            What::Overflow(ip) => {
                self.enabled = ip.is_some();
                self.goes(ip.unwrap_or(0), 0);
                Happening::Overflow
            }
            What::Mode(long, _) => {
                let other = self.mode.is_some_and(|known| known != long);
                if self.enabled && (!here || status && other) {
                    return Err(Lost::NotHere);
                }
                if other {
                    self.next = 0;
                }
                self.mode = Some(long);
                Happening::Other
            }
            What::Transaction(false, _) | What::PagingAt(_) | What::MachineAt(_) if here => Happening::Other,
            What::Stop if !self.enabled => Happening::Other,
            What::Frequency | What::Paging => Happening::Other,
            _ => return Err(Lost::NotHere),
        };
        self.fetch();
        Ok((TimedHappening { tsc: has_tsc.then_some(tsc), status, what: happening }, self.trailing()?))
    }

    #[inline]
    fn block(&mut self, spaces: &mut Spaces<'_>, within: &Range<u64>) -> Result<(Block, bool), Lost> {
        if let Some(over) = self.over {
            return self.without_trace(spaces, over);
        }
        match self.event.what {
            What::Taken { .. } | What::Target(_) => {
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
        Some(self.tsc)
    }

    fn offset(&self) -> Option<u64> {
        self.events.offset()
    }

    fn look_into(&mut self, _: &mut Spaces<'_>, space: usize) {
        if self.space.replace(space) != Some(space) {
            self.next = 0;
            self.returns.forget_callers();
        }
    }
}
