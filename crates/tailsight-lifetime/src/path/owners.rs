//! The owners of time that walks find: each is created once and has a number.
//!
//! In: nodes of the core timelines, sleeps, waits. Out: [`OwnerId`]s, and the list that they index.

use rustc_hash::FxHashMap;

use crate::input::Names;
use crate::messages::task_runs::Meanwhile;
use crate::model::{Context, Frame, Interrupt, Owner, OwnerId, Who};
use crate::scan::activity::Activity;
use crate::timelines::sleep::Sleep;
use crate::timelines::tree::NodeId;

/// Owners, made once each.
#[derive(Debug, Default)]
pub struct Owners {
    list: Vec<Owner>,
    who: Vec<Who>,
    ids: FxHashMap<(Owner, Who), OwnerId>,
    /// By node and [`View`]; `NO_OWNER` where there is none yet.
    by_node: Vec<[OwnerId; 6]>,
    /// By sleep and who ended it.
    blocked: FxHashMap<(Sleep, Option<Frame>), OwnerId>,
    /// By node of another thread, the reason for waiting for it, and whether it served other messages.
    waited: FxHashMap<(NodeId, Frame, bool), OwnerId>,
    /// Waits without a task.
    singles: FxHashMap<Frame, OwnerId>,
    /// Sleeps of a thread while it served other messages, by the owner that they would be as a message's own.
    ahead_asleep: FxHashMap<OwnerId, OwnerId>,
    unknown: Option<OwnerId>,
    profiler: Option<OwnerId>,
}

const NO_OWNER: OwnerId = OwnerId::MAX;

/// How a message sees a node of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// The message's thread, working for it.
    Own,
    /// The same, between two send calls of its reply.
    BetweenSends,
    /// The message's thread, working for others.
    Ahead,
    /// Another task on the core for which the message's thread waits.
    Other,
    /// The same, another thread of the application that serves other messages.
    Serving,
    /// The same, the core being idle although the thread is runnable.
    WakePending,
}

impl Owners {
    /// An owner that is no task.
    fn intern(&mut self, owner: Owner) -> OwnerId {
        self.intern_task(owner, Who::default())
    }

    fn intern_task(&mut self, owner: Owner, who: Who) -> OwnerId {
        let key = (owner, who);
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = self.list.len() as OwnerId;
        self.list.push(key.0.clone());
        self.who.push(key.1.clone());
        self.ids.insert(key, id);
        id
    }

    pub(super) fn of_node(&mut self, activity: &Activity, node: NodeId, view: View) -> OwnerId {
        match self.by_node.get(node as usize) {
            Some(ids) if ids[view as usize] != NO_OWNER => return ids[view as usize],
            Some(_) => {}
            None => self.by_node.resize(activity.tree.len(), [NO_OWNER; 6]),
        }
        let names: &Names = activity.threads.names();
        let tid = activity.tree.task_of(node);
        let mut frames = activity.tree.frames(node);
        // The scheduler does not idle a core that has a runnable task: the core was idle as long as that task waited, however it
        // became so.
        if view == View::WakePending {
            frames.retain(|f| *f != Frame::Unseen);
        }
        let context = match view {
            _ if frames.contains(&Frame::Unseen) => Context::Unknown,
            View::Own | View::BetweenSends => Context::Own,
            View::Ahead => Context::Ahead,
            _ if tid == 0 => Context::Idle,
            _ if names.is_target(tid) => Context::Sibling { comm: names.comm(tid) },
            _ => Context::Foreign { comm: names.comm(tid), kernel: names.is_kernel(tid) },
        };
        if view == View::BetweenSends {
            frames.insert(0, Frame::BetweenSends);
        }
        if view == View::Serving && matches!(context, Context::Sibling { .. }) {
            frames.insert(0, Frame::Serving);
        }
        let owned_elsewhere = |f: &Frame| f.is_interrupt(Interrupt::Packet) || *f == Frame::Stolen;
        if view == View::WakePending && tid == 0 && !frames.iter().any(owned_elsewhere) {
            frames.push(Frame::WakePending);
        }
        let is_task = matches!(context, Context::Sibling { .. } | Context::Foreign { .. });
        let who = if is_task { names.who(tid) } else { Who::default() };
        let id = self.intern_task(Owner { context, frames }, who);
        self.by_node[node as usize][view as usize] = id;
        id
    }

    /// A sleep that ended by itself, by an interrupt, by a task outside the application or by a packet of another server
    /// (`by`).
    pub(super) fn blocked(&mut self, how: Sleep, by: Option<Frame>) -> OwnerId {
        if let Some(&id) = self.blocked.get(&(how, by)) {
            return id;
        }
        let mut frames = vec![if how.stopped { Frame::Stopped } else { sleep_frame(how) }];
        if !how.stopped {
            frames.extend(how.doing);
            frames.extend((how.stack != 0).then_some(Frame::Stack { symbol: how.stack }));
            frames.extend(by);
            if how.function != 0 {
                frames.insert(0, Frame::Function { symbol: how.function, kernel: false });
            }
            frames.extend(how.place.checked_sub(1).map(|stack| Frame::Place { stack }));
        }
        let id = self.intern(Owner { context: Context::Blocked, frames });
        self.blocked.insert((how, by), id);
        id
    }

    /// A sleep of the message's thread while it served others.
    pub(super) fn ahead_asleep(&mut self, how: Sleep, by: Option<Frame>) -> OwnerId {
        let asleep = self.blocked(how, by);
        if let Some(&id) = self.ahead_asleep.get(&asleep) {
            return id;
        }
        let frames = self.list[asleep as usize].frames.clone();
        let id = self.intern(Owner { context: Context::Ahead, frames });
        self.ahead_asleep.insert(asleep, id);
        id
    }

    /// A sleep of another thread of the application while it was waited for.
    pub(super) fn waited_asleep(
        &mut self,
        tid: u32,
        because: (Frame, bool),
        how: Sleep,
        by: Option<Frame>,
        names: &Names,
    ) -> OwnerId {
        let asleep = self.blocked(how, by);
        let frames = why(because).chain(self.list[asleep as usize].frames.iter().copied()).collect();
        self.intern_task(Owner { context: Context::Sibling { comm: names.comm(tid) }, frames }, names.who(tid))
    }

    /// What another thread of the application did while it was waited for.
    pub(super) fn waited(&mut self, activity: &Activity, node: NodeId, because: (Frame, bool)) -> OwnerId {
        let key = (node, because.0, because.1);
        if let Some(&id) = self.waited.get(&key) {
            return id;
        }
        let (names, tid) = (activity.threads.names(), activity.tree.task_of(node));
        let frames = why(because).chain(activity.tree.frames(node)).collect();
        let id =
            self.intern_task(Owner { context: Context::Sibling { comm: names.comm(tid) }, frames }, names.who(tid));
        self.waited.insert(key, id);
        id
    }

    pub(super) fn single(&mut self, frame: Frame) -> OwnerId {
        if let Some(&id) = self.singles.get(&frame) {
            return id;
        }
        let id = self.intern(Owner { context: Context::Blocked, frames: vec![frame] });
        self.singles.insert(frame, id);
        id
    }

    /// A wait for another server's answer, at a place of the program where that is known.
    pub(super) fn answer(&mut self, frame: Frame, place: u32) -> OwnerId {
        match place.checked_sub(1) {
            None => self.single(frame),
            Some(stack) => {
                self.intern(Owner { context: Context::Blocked, frames: vec![frame, Frame::Place { stack }] })
            }
        }
    }

    /// A wait of the message's task, at a place of the program where that is known.
    /// `ended`: where it was ended. `for_others`: it waited for another message, which it had first. `turn`: for its turn to ask this server; 0: not
    /// known to be for that.
    pub(super) fn parked(
        &mut self,
        (stack, ended): (Option<u32>, Option<u32>),
        (for_others, turn): (bool, u32),
        meanwhile: Option<Meanwhile>,
    ) -> OwnerId {
        let context = if for_others { Context::Ahead } else { Context::Blocked };
        let did = |m: Meanwhile| Frame::Meanwhile {
            doing: m.doing,
            stack: m.stack.map_or(0, |stack| stack + 1),
            server: m.server,
        };
        let place = stack.map(|stack| Frame::Place { stack });
        let ended = ended.map(|stack| Frame::MadeReady { stack });
        let waits = if turn == 0 { Frame::Parked } else { Frame::Turn { symbol: turn, guessed: false } };
        let frames = std::iter::once(waits).chain(meanwhile.map(did)).chain(ended).chain(place).collect();
        self.intern(Owner { context, frames })
    }

    pub(super) fn unknown(&mut self) -> OwnerId {
        self.unknown.unwrap_or_else(|| {
            let id = self.intern(Owner { context: Context::Unknown, frames: vec![] });
            *self.unknown.insert(id)
        })
    }

    /// The recorder's hooks.
    pub fn profiler(&mut self) -> OwnerId {
        self.profiler.unwrap_or_else(|| {
            let id = self.intern(Owner { context: Context::Profiler, frames: vec![] });
            *self.profiler.insert(id)
        })
    }

    /// An owner that a walk found.
    pub fn get(&self, id: OwnerId) -> &Owner {
        &self.list[id as usize]
    }

    /// Adds the owners of another walk, and returns their ids here, by their ids there.
    pub fn adopt(&mut self, other: Owners) -> Vec<OwnerId> {
        let (list, who) = other.into_lists();
        list.into_iter().zip(who).map(|(owner, who)| self.intern_task(owner, who)).collect()
    }

    /// Every owner, and which task it was, by id.
    pub fn into_lists(self) -> (Vec<Owner>, Vec<Who>) {
        (self.list, self.who)
    }

    /// Continues with the owners of an earlier walk, so that ids stay the same.
    pub fn resume(list: Vec<Owner>, who: Vec<Who>) -> Owners {
        let ids = list.iter().cloned().zip(who.iter().cloned()).zip(0..).collect();
        Owners { list, who, ids, ..Owners::default() }
    }
}

/// The reason for waiting for another thread, and whether it served other messages meanwhile.
fn why((because, serving): (Frame, bool)) -> impl Iterator<Item = Frame> {
    std::iter::once(because).chain(serving.then_some(Frame::Serving))
}

pub(crate) fn sleep_frame(how: Sleep) -> Frame {
    Frame::SleepIn { nr: how.nr, uninterruptible: how.uninterruptible, io: how.io }
}
