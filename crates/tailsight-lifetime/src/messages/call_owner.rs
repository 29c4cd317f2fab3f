//! The message of a call to another server, if the calling thread had several candidates.
//!
//! In: the calls as [`crate::messages::backend_calls`] saw them, the messages with their replies, and when each thread waited for work.
//! Out: the message of each call of a thread that serves its messages alone (an event loop), or that it is unknown. All times in ns.
//!
//! A *turn* of a loop is the time from one wait for work to the next: it receives messages and answers, and sends calls and replies.
//!
//! Where each message asks once and is replied to in the turn of its answer (a proxy), as those show that the rules below decide, answers and
//! replies of a turn are matched: each reply is of the message of one answer. If that is more than one, their order decides.
//!
//! Else a message is *at hand* (a candidate) if it, or the answer to a call of it, was received in this turn. A call belongs to a message at
//! hand whose reply was not sent before the answer came. If there are several, these rules decide in this order: what the loop does
//! between the answer and its next wait; the client for which the connection was always used; the order in which this loop handles its
//! messages, if that was right for the calls that the first two rules decided. Where these decided too few, a loop that works on each message
//! as soon as it has received it asks for the one that it received last. If none is at hand (a timer, another thread), or what the loop does
//! after the answer is for none of them, the only reply of the turn that no other answer explains decides.
//!
//! A pool of connections that are all in use hands a connection over: the call follows in the same turn the answer to the call before it on
//! that connection. It belongs to a message that came in an earlier turn and has not asked yet; if there are several, these rules decide
//! again, with the order of arrival as the order. Or it belongs to the message of the call before it, if that one was not replied to
//! in this turn: a transaction, or a pool that resets a connection that is given back. What the loop does after the answer decides
//! between the two, and for those where that is not known, what it decided for nearly all others.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use tailsight_trace::FlowKey;

use crate::messages::Extra;
use crate::messages::backend_calls::NOBODY;
use crate::messages::receive_order;
use crate::model::{Message, Threshold};

/// A question that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its connection.
    pub key: FlowKey,
    /// The thread that sent it, and when.
    pub sent: (u32, u64),
    /// The thread that received the first part of the answer, and when.
    pub received: (u32, u64),
    /// When the last part was received.
    pub last: u64,
    /// It was sent in several pieces, which may be as many questions.
    pub pieces: bool,
}

/// What is known of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Its thread is no event loop, or had nothing at hand.
    NotTold,
    /// Of one of several messages, or of another one than its thread had at hand.
    Unknown,
    /// Of this message (its index as found).
    Of(u32),
}

/// What is known of each question.
#[derive(Clone, Debug)]
pub struct Told {
    /// Whose it is.
    pub whose: Vec<Whose>,
    /// Whether its message waited in line until a connection of a full pool was free.
    pub in_line: Vec<bool>,
    /// Whether whose it is rests on the order in which the loop handles its messages, and on nothing that it did for that message.
    pub guessed: Vec<bool>,
}

/// Messages in service at once on one thread beyond which the oldest is forgotten.
const MOST: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Step {
    Slept,
    Took(u32),
    Answered(usize),
    Asked(usize),
    Replied(u32),
}

/// What the loop had when it asked.
#[derive(Clone, Debug, Default)]
struct Asked {
    /// Messages at hand.
    hand: Vec<u32>,
    /// Messages that it had received and not replied to.
    service: Vec<u32>,
    /// Those of them that it received in an earlier turn and did not ask for yet, in the order in which they came.
    waiting: Vec<u32>,
    /// The one at hand that came first and asked nothing since; the one that came last.
    first: Option<u32>,
    newest: Option<u32>,
}

/// How often an order was right and wrong.
#[derive(Clone, Copy, Debug, Default)]
struct Score(u32, u32);

impl Score {
    fn count(&mut self, right: bool) {
        self.0 += u32::from(right);
        self.1 += 1;
    }
    fn holds(self) -> bool {
        self.1 >= Threshold::AskersTold.count() as u32
            && f64::from(self.0) >= Threshold::AskersAgree.share() * f64::from(self.1)
    }
}

/// A thread that serves its messages alone.
struct Loop {
    steps: Vec<(u64, Step)>,
    /// When it began to wait for work.
    sleeps: Vec<u64>,
    /// It works on a message as soon as it has received it.
    works_at_once: bool,
    /// A message of it asks a single question, if any: what it asks after an answer is for another one.
    asks_once: bool,
    orders: Orders,
}

impl Loop {
    fn new(steps: Vec<(u64, Step)>, sleeps: Vec<u64>) -> Loop {
        let is_received = |&(at, step): &(u64, Step)| (at, matches!(step, Step::Took(_)));
        let works_at_once = receive_order::works_after_it_received(steps.iter().map(is_received)) == Some(false);
        Loop { steps, sleeps, works_at_once, asks_once: false, orders: Orders::default() }
    }
}

/// In which order a loop turns to the messages at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As they came.
    First,
    /// The one that came last.
    Newest,
}

impl Asked {
    /// Whose the question is by this order.
    fn by(&self, order: Option<Order>) -> Option<u32> {
        let by = match order? {
            Order::First => self.first,
            Order::Newest => self.newest,
        };
        by.filter(|&m| m != NOBODY)
    }
}

/// How a loop takes its messages, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    /// Those at hand.
    hand: Option<Order>,
    /// It gives a connection of a full pool to the message that has waited longest.
    pool_in_turn: bool,
    /// Whether a message that asks again keeps its connection, if nearly all do or nearly none.
    keeps: Option<bool>,
}

/// What a loop does between an answer and its next wait.
#[derive(Clone, Copy)]
struct Then<'a> {
    /// The messages that it does something for.
    does: &'a [u32],
    /// They are all.
    sure: bool,
}

/// What a pass over the questions of a loop learns of its orders, and the questions that these decide.
#[derive(Default)]
struct Pass<'a> {
    first: Score,
    newest: Score,
    in_turn: Score,
    keeps: Score,
    /// Of one of several messages at hand.
    open: Vec<(usize, &'a Asked, Vec<u32>)>,
    /// Of one of those that waited for a connection, with the one that had waited longest.
    pooled: Vec<(usize, u32)>,
}

impl Pass<'_> {
    /// `works_at_once`: as of [`Loop`].
    fn orders(&self, works_at_once: bool) -> Orders {
        let too_few = self.newest.1 < Threshold::AskersTold.count() as u32;
        let hand = match (self.first.holds(), self.newest.holds()) {
            (true, _) => Some(Order::First),
            (_, true) => Some(Order::Newest),
            _ if too_few && works_at_once => Some(Order::Newest),
            _ => None,
        };
        let never = Score(self.keeps.1 - self.keeps.0, self.keeps.1);
        let keeps = self.keeps.holds().then_some(true).or(never.holds().then_some(false));
        Orders { hand, pool_in_turn: self.in_turn.holds(), keeps }
    }
}

/// Whose the question before was on a connection that was freed and used again in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Of a message that was replied to in that turn, if of any.
    Nobody,
    /// Of one that is not known, and nobody was replied to.
    Somebody,
    /// Of this one, which goes on.
    Of(u32),
}

struct Judge<'a> {
    questions: &'a [Question],
    messages: &'a [Message],
    extras: &'a [Extra],
    told: Vec<Whose>,
    /// Of each question that was sent on a connection of a full pool which the answer before it had just freed: the question before.
    handed_over: Vec<Option<usize>>,
    /// Of each question: it is of the message of that question before, which keeps its connection.
    kept: Vec<bool>,
    /// Of each question: it was, and is of a message that waited for that.
    in_line: Vec<bool>,
    /// Of each question: an order alone says whose it is.
    guessed: Vec<bool>,
    /// Replies by thread and time, each with its message.
    replies: Vec<((u32, u64), u32)>,
    /// The questions, by the thread that received the answer and when.
    answers: Vec<((u32, u64), usize)>,
}

/// Tells whose each question is. `sleeps`: when a thread began to wait for work, in order.
pub fn tell(questions: &[Question], messages: &[Message], extras: &[Extra], sleeps: impl Fn(u32) -> Vec<u64>) -> Told {
    /// Each pass can only use what the one before it told.
    const PASSES: usize = 6;
    if questions.is_empty() {
        return Told { whose: vec![], in_line: vec![], guessed: vec![] };
    }
    let (told, none) = (vec![Whose::NotTold; questions.len()], vec![false; questions.len()]);
    let handed = vec![None; questions.len()];
    let sent = messages.iter().zip(extras).zip(0..).filter(|((m, _), _)| m.send_ns != 0);
    let mut replies: Vec<((u32, u64), u32)> = sent.map(|((_, e), m)| ((e.send_tid, e.sent_ns), m)).collect();
    replies.sort_unstable();
    let mut answers: Vec<((u32, u64), usize)> = questions.iter().zip(0..).map(|(q, c)| (q.received, c)).collect();
    answers.sort_unstable();
    let mut judge = Judge {
        questions,
        messages,
        extras,
        told,
        handed_over: handed,
        kept: none.clone(),
        in_line: none.clone(),
        guessed: none,
        replies,
        answers,
    };
    let mut loops: Vec<Loop> = judge
        .loops()
        .into_iter()
        .map(|tid| {
            let sleeps = sleeps(tid);
            Loop::new(judge.steps(tid, &sleeps), sleeps)
        })
        .collect();
    for of in &loops {
        for (c, before) in handed_over(questions, &of.steps) {
            judge.handed_over[c] = Some(before);
        }
    }
    for _ in 0..PASSES {
        let before = judge.told.clone();
        let clients = judge.clients();
        for of in &mut loops {
            of.asks_once = judge.asks_once(of);
            of.orders = judge.decide(of, &clients);
        }
        if judge.told == before {
            break;
        }
    }
    Told { whose: judge.told, in_line: judge.in_line, guessed: judge.guessed }
}

/// When the turn of a loop began and ended that a time is in.
fn turn_around(sleeps: &[u64], at: u64) -> (u64, u64) {
    let turn = sleeps.partition_point(|slept| *slept <= at);
    (turn.checked_sub(1).map_or(0, |i| sleeps[i]), sleeps.get(turn).copied().unwrap_or(u64::MAX))
}

/// The questions of a loop that were sent on a connection which the answer to the question before it had freed in the same turn, while as
/// many connections to that server were in use as ever were: the loop has no more of them. Each with that question before.
fn handed_over(questions: &[Question], steps: &[(u64, Step)]) -> Vec<(usize, usize)> {
    let server = |c: usize| (questions[c].key.addrs, questions[c].key.remote_port());
    let mut most: FxHashMap<(u64, u16), u32> = FxHashMap::default();
    // Each question with the one before and how many were in use then, if its connection was freed in its turn.
    let mut freed_then = Vec::new();
    // The connections in use, each with its questions.
    let mut in_use: FxHashMap<(u64, u16), FxHashMap<FlowKey, u32>> = FxHashMap::default();
    let mut freed: FxHashMap<FlowKey, usize> = FxHashMap::default();
    for &(_, step) in steps {
        match step {
            Step::Slept => freed.clear(),
            Step::Asked(c) => {
                let of = in_use.entry(server(c)).or_default();
                *of.entry(questions[c].key).or_default() += 1;
                let now = of.len() as u32;
                let most = most.entry(server(c)).or_default();
                *most = (*most).max(now);
                if let Some(before) = freed.remove(&questions[c].key) {
                    freed_then.push((c, before, now));
                }
            }
            Step::Answered(c) => {
                let of = in_use.entry(server(c)).or_default();
                let left = of.get(&questions[c].key).map_or(0, |n| n.saturating_sub(1));
                if left == 0 {
                    of.remove(&questions[c].key);
                } else {
                    of.insert(questions[c].key, left);
                }
                freed.insert(questions[c].key, c);
            }
            Step::Took(_) | Step::Replied(_) => {}
        }
    }
    let full = freed_then.into_iter().filter(|&(c, _, n)| most.get(&server(c)) == Some(&n));
    full.map(|(c, before, _)| (c, before)).collect()
}

impl Judge<'_> {
    /// Threads that ask, receive the answers, and reply to what they received, all themselves.
    fn loops(&self) -> Vec<u32> {
        let mut threads: FxHashMap<u32, Score> = FxHashMap::default();
        for q in self.questions {
            threads.entry(q.sent.0).or_default().count(q.sent.0 == q.received.0);
        }
        for (m, e) in self.messages.iter().zip(self.extras).filter(|(m, _)| m.send_ns != 0) {
            if let Some(score) = threads.get_mut(&m.tid) {
                score.count(e.send_tid == m.tid);
            }
        }
        let alone = |s: &Score| f64::from(s.0) >= Threshold::AskersAgree.share() * f64::from(s.1);
        let mut tids: Vec<u32> = threads.into_iter().filter(|(_, s)| alone(s)).map(|(tid, _)| tid).collect();
        tids.sort_unstable();
        tids
    }

    fn steps(&self, tid: u32, sleeps: &[u64]) -> Vec<(u64, Step)> {
        let mut steps: Vec<(u64, Step)> = sleeps.iter().map(|&at| (at, Step::Slept)).collect();
        for ((m, e), i) in self.messages.iter().zip(self.extras).zip(0..) {
            if m.tid == tid && m.recv_ns != 0 {
                steps.push((m.recv_ns, Step::Took(i)));
            }
            if e.send_tid == tid && m.send_ns != 0 {
                steps.push((e.sent_ns, Step::Replied(i)));
            }
        }
        for (c, q) in self.questions.iter().enumerate() {
            if q.sent.0 == tid {
                steps.push((q.sent.1, Step::Asked(c)));
            }
            if q.received.0 == tid {
                steps.push((q.received.1, Step::Answered(c)));
            }
        }
        steps.sort_by_key(|s| s.0);
        steps
    }

    /// The client connection that each connection to another server was used for, where that is always the same.
    fn clients(&self) -> FxHashMap<FlowKey, u32> {
        let mut votes: FxHashMap<FlowKey, FxHashMap<u32, u32>> = FxHashMap::default();
        for (q, told) in self.questions.iter().zip(&self.told) {
            if let Whose::Of(m) = *told {
                *votes.entry(q.key).or_default().entry(self.messages[m as usize].flow).or_default() += 1;
            }
        }
        let always = |votes: FxHashMap<u32, u32>| {
            let all = votes.values().sum();
            votes.into_iter().find(|&(_, n)| Score(n, all).holds()).map(|(flow, _)| flow)
        };
        votes.into_iter().filter_map(|(key, votes)| Some((key, always(votes)?))).collect()
    }

    /// Whether messages ask a single question each and are replied to in the turn of its answer, by those that are told.
    fn asks_once(&self, of: &Loop) -> bool {
        let mut by_message: FxHashMap<u32, (u32, bool)> = FxHashMap::default();
        for (_, step) in &of.steps {
            if let Step::Asked(c) = *step
                && let Whose::Of(m) = self.told[c]
            {
                let (_, end) = turn_around(&of.sleeps, self.questions[c].last);
                let (questions, is_replied) = by_message.entry(m).or_default();
                *questions += 1;
                *is_replied = self.messages[m as usize].send_ns != 0 && self.extras[m as usize].sent_ns <= end;
            }
        }
        let mut score = Score::default();
        by_message.into_values().for_each(|(questions, is_replied)| score.count(questions == 1 && is_replied));
        score.holds()
    }

    /// Whether a message was received before a question was sent and not replied to before the answer came.
    fn spans(&self, m: u32, q: &Question) -> bool {
        let m = &self.messages[m as usize];
        m.recv_ns <= q.sent.1 && (m.send_ns == 0 || m.send_ns >= q.received.1)
    }

    /// Tells the questions of a loop, and returns its orders.
    fn decide(&mut self, of: &Loop, clients: &FxHashMap<FlowKey, u32>) -> Orders {
        let asked = self.walk(&of.steps, of.orders);
        let asks: Vec<(u64, usize)> = asked.iter().map(|&(c, _)| (self.questions[c].sent.1, c)).collect();
        let in_line: Vec<bool> = asked.iter().map(|(c, had)| self.waited(*c, had) && !self.kept[*c]).collect();
        asked.iter().zip(in_line).for_each(|(&(c, _), is)| self.in_line[c] = is);
        let mut pass = Pass::default();
        for (c, had) in &asked {
            self.guessed[*c] = false;
            let (does, sure) = self.does_then(&self.questions[*c], had, of, &asks);
            let then = Then { does: &does, sure };
            if of.asks_once
                && let Some((m, guessed)) = self.replied_for(*c, of)
            {
                (self.told[*c], self.guessed[*c]) = (Whose::Of(m), guessed);
                continue;
            }
            if self.waited(*c, had) && self.goes_on(*c, had, of, then, &mut pass) {
                continue;
            }
            self.told[*c] = match self.in_line[*c] {
                true => self.next_in_line(*c, had, then, &mut pass),
                false => self.at_hand(*c, had, then, of, clients, &mut pass),
            };
        }
        let orders = pass.orders(of.works_at_once);
        for (c, had, of) in pass.open {
            if let Some(m) = had.by(orders.hand).filter(|m| of.contains(m)) {
                (self.told[c], self.guessed[c]) = (Whose::Of(m), true);
            }
        }
        for (c, m) in pass.pooled.into_iter().filter(|_| orders.pool_in_turn) {
            (self.told[c], self.guessed[c]) = (Whose::Of(m), true);
        }
        orders
    }

    /// Whether a question was sent on a connection of a full pool for which a message waited.
    fn waited(&self, c: usize, had: &Asked) -> bool {
        self.handed_over[c].is_some() && had.waiting.iter().any(|&m| self.spans(m, &self.questions[c]))
    }

    /// The message of the question before may have kept its connection: whether that, or that it is not known, is all there is to
    /// tell. Else it gave it to one that waited.
    fn goes_on(&mut self, c: usize, had: &Asked, of: &Loop, then: Then<'_>, pass: &mut Pass<'_>) -> bool {
        match self.before(c, &of.sleeps) {
            Before::Of(holder) => {
                let others = had.waiting.iter().any(|m| *m != holder && then.does.contains(m));
                let known = match (then.does.contains(&holder), others) {
                    (true, false) if then.sure => Some(true),
                    (false, true) if then.sure => Some(false),
                    _ => None,
                };
                known.inspect(|&is| pass.keeps.count(is));
                let keeps = known.or(of.orders.keeps);
                self.guessed[c] = known.is_none();
                self.kept[c] = keeps == Some(true);
                if keeps == Some(false) {
                    return false;
                }
                self.in_line[c] &= !self.kept[c];
                self.told[c] = if self.kept[c] { Whose::Of(holder) } else { Whose::Unknown };
                true
            }
            // Whoever it was keeps it, and what is done afterwards says who.
            Before::Somebody if of.orders.keeps == Some(true) => {
                (self.kept[c], self.in_line[c]) = (true, false);
                self.told[c] = match then.does {
                    [m] if then.sure => Whose::Of(*m),
                    _ => Whose::Unknown,
                };
                true
            }
            Before::Somebody | Before::Nobody => false,
        }
    }

    /// Which of the messages that waited for a connection has it.
    fn next_in_line(&self, c: usize, had: &Asked, then: Then<'_>, pass: &mut Pass<'_>) -> Whose {
        let waiting: Vec<u32> = had.waiting.iter().copied().filter(|&m| self.spans(m, &self.questions[c])).collect();
        let theirs: Vec<u32> = waiting.iter().copied().filter(|m| then.does.contains(m)).collect();
        let told = match (&waiting[..], &theirs[..]) {
            (&[m], _) if !then.sure || then.does.is_empty() || then.does.contains(&m) => Whose::Of(m),
            (_, &[m]) if then.sure => Whose::Of(m),
            _ => Whose::Unknown,
        };
        match told {
            Whose::Of(m) if waiting.len() > 1 => pass.in_turn.count(waiting[0] == m),
            Whose::Of(_) => {}
            _ => pass.pooled.push((c, waiting[0])),
        }
        told
    }

    /// Which of the messages at hand asked.
    fn at_hand<'h>(
        &self,
        c: usize,
        had: &'h Asked,
        then: Then<'_>,
        of: &Loop,
        clients: &FxHashMap<FlowKey, u32>,
        pass: &mut Pass<'h>,
    ) -> Whose {
        let q = &self.questions[c];
        let mut hand: Vec<u32> = had.hand.iter().copied().filter(|&m| self.spans(m, q)).collect();
        let replied_for = || match self.replied_for(c, of) {
            Some((m, false)) if then.sure => Whose::Of(m),
            _ => Whose::Unknown,
        };
        let told = match hand[..] {
            // Nothing at hand: a timer, or another thread whose answer let a message of this loop ask.
            [] => match replied_for() {
                Whose::Unknown => Whose::NotTold,
                told => told,
            },
            [m] if then.sure && !then.does.is_empty() && !then.does.contains(&m) => replied_for(),
            [m] => Whose::Of(m),
            _ => {
                if then.sure && hand.iter().any(|m| then.does.contains(m)) {
                    hand.retain(|m| then.does.contains(m));
                }
                let client = clients.get(&q.key);
                let is_theirs = |&m: &u32| client == Some(&self.messages[m as usize].flow);
                let theirs: Vec<u32> = hand.iter().copied().filter(is_theirs).collect();
                match (&hand[..], &theirs[..]) {
                    (&[m], _) if !q.pieces => Whose::Of(m),
                    (_, &[m]) => Whose::Of(m),
                    _ => replied_for(),
                }
            }
        };
        match told {
            Whose::Of(m) if had.hand.len() > 1 => {
                had.by(Some(Order::First)).inspect(|&by| pass.first.count(by == m));
                had.by(Some(Order::Newest)).inspect(|&by| pass.newest.count(by == m));
            }
            Whose::Unknown if hand.len() > 1 && !q.pieces => pass.open.push((c, had, hand)),
            _ => {}
        }
        told
    }

    /// The message that the loop replied to between the answer and its next wait, if there is an answer that is not known to be anybody's for
    /// each such reply of that turn. And whether their order alone says which is whose: more than one reply can be of each.
    fn replied_for(&self, c: usize, of: &Loop) -> Option<(u32, bool)> {
        /// With more answers in a turn it is a long one, which tells nothing.
        const ANSWERS: usize = 32;
        let (tid, answered) = self.questions[c].received;
        let (from, to) = turn_around(&of.sleeps, answered);
        let first = self.answers.partition_point(|&(answer, _)| answer <= (tid, from));
        let of_turn = self.answers[first..].iter().take_while(|&&(answer, _)| answer <= (tid, to));
        let (mut explained, mut open) = (Vec::new(), Vec::new());
        for &(_, question) in of_turn.take(ANSWERS + 1) {
            match self.told[question] {
                // Where each message asks once, the replies tell more than the order of calls did.
                Whose::Of(m) if question != c && !of.asks_once => {
                    // One that ended before this was asked may have been followed by this one.
                    if self.questions[question].received.1 > self.questions[c].sent.1 {
                        explained.push(m);
                    }
                }
                _ => open.push((question, Vec::new())),
            }
        }
        // A message may have asked again in place of a reply: then one answer and one reply are all that can be matched.
        if explained.len() + open.len() > ANSWERS || open.len() > 1 && !of.asks_once {
            return None;
        }
        let first = self.replies.partition_point(|&(reply, _)| reply <= (tid, from));
        let replied = self.replies[first..].iter().take_while(|&&(reply, _)| reply <= (tid, to));
        let mut rest: Vec<u32> = replied.map(|&(_, m)| m).filter(|m| !explained.contains(m)).collect();
        for (question, may) in &mut open {
            let q = &self.questions[*question];
            may.extend(rest.iter().copied().filter(|&m| self.spans(m, q)));
        }
        rest.retain(|m| open.iter().any(|(_, may)| may.contains(m)));
        if rest.len() != open.len() {
            return None;
        }
        // Answers and replies are in order of time.
        let mut guessed = false;
        while !open.is_empty() {
            let only = open.iter().position(|(_, may)| may.len() == 1);
            guessed |= only.is_none();
            let (question, may) = open.remove(only.unwrap_or(0));
            let &m = may.first()?;
            if question == c {
                return Some((m, guessed));
            }
            open.iter_mut().for_each(|(_, others)| others.retain(|&other| other != m));
        }
        None
    }

    /// Of a question on a connection that was just freed: who may keep it.
    fn before(&self, c: usize, sleeps: &[u64]) -> Before {
        let Some(before) = self.handed_over[c] else { return Before::Nobody };
        let (tid, answered) = self.questions[before].received;
        let end = sleeps.get(sleeps.partition_point(|at| *at <= answered)).copied().unwrap_or(u64::MAX);
        match self.told[before] {
            Whose::Of(m) => {
                let later = self.messages[m as usize].send_ns == 0 || self.extras[m as usize].sent_ns > end;
                if later && self.spans(m, &self.questions[c]) { Before::Of(m) } else { Before::Nobody }
            }
            _ => {
                let from = self.replies.partition_point(|&(reply, _)| reply < (tid, answered));
                let replied = self.replies.get(from).is_some_and(|&(reply, _)| reply <= (tid, end));
                if replied { Before::Nobody } else { Before::Somebody }
            }
        }
    }

    /// What the loop had whenever it asked. What is not known of a question is assumed by its order, for what follows it.
    fn walk(&self, steps: &[(u64, Step)], orders: Orders) -> Vec<(usize, Asked)> {
        let order = orders.hand;
        let mut out = Vec::new();
        // Received in this turn, or in an earlier one, and not asked for yet.
        let (mut fresh, mut waiting): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut assumed: FxHashMap<usize, u32> = FxHashMap::default();
        let (mut hand, mut service) = (Vec::new(), VecDeque::new());
        // In the order in which they came; NOBODY: a message that is not known.
        let (mut queue, mut newest) = (VecDeque::new(), None);
        for &(_, step) in steps {
            match step {
                Step::Slept => {
                    hand.clear();
                    queue.clear();
                    newest = None;
                    waiting.append(&mut fresh);
                    // The oldest are forgotten.
                    waiting.drain(..waiting.len().saturating_sub(MOST));
                }
                Step::Took(m) => {
                    if service.len() == MOST {
                        service.pop_front();
                    }
                    service.push_back(m);
                    fresh.push(m);
                    hand.push(m);
                    queue.push_back(m);
                    newest = Some(m);
                }
                Step::Answered(c) => {
                    let of = match self.told[c] {
                        Whose::Of(m) => m,
                        _ => assumed.get(&c).copied().unwrap_or(NOBODY),
                    };
                    if of == NOBODY {
                        // Of whichever was in service then.
                        hand.extend(service.iter().copied().filter(|&m| self.spans(m, &self.questions[c])));
                    } else {
                        hand.push(of);
                    }
                    queue.push_back(of);
                    newest = Some(of);
                }
                Step::Asked(c) => {
                    hand.sort_unstable();
                    hand.dedup();
                    let first = queue.pop_front();
                    let service = service.iter().copied().collect();
                    let asked = Asked { hand: hand.clone(), service, waiting: waiting.clone(), first, newest };
                    let spans = |m: &u32| self.spans(*m, &self.questions[c]);
                    let pooled = self.handed_over[c].is_some() && !self.kept[c] && waiting.iter().any(&spans);
                    let by_order = match pooled {
                        true => waiting.iter().copied().find(&spans).filter(|_| orders.pool_in_turn),
                        false => asked.by(order).filter(&spans),
                    };
                    let of = match (self.told[c], by_order) {
                        (Whose::Of(m), _) => Some(m),
                        (_, Some(m)) => {
                            assumed.insert(c, m);
                            Some(m)
                        }
                        _ => None,
                    };
                    fresh.retain(|m| Some(*m) != of);
                    waiting.retain(|m| Some(*m) != of);
                    out.push((c, asked));
                }
                Step::Replied(m) => {
                    hand.retain(|x| *x != m);
                    service.retain(|x| *x != m);
                    fresh.retain(|x| *x != m);
                    waiting.retain(|x| *x != m);
                    queue.retain(|x| *x != m);
                }
            }
        }
        out
    }

    /// The messages in service all through the question that the loop replied to, or asked for, from the answer to the end of its
    /// turn, and whether that is all it did.
    fn does_then(&self, q: &Question, had: &Asked, of: &Loop, asks: &[(u64, usize)]) -> (Vec<u32>, bool) {
        /// With more questions in a turn it is a long one, which tells nothing.
        const ASKS: usize = 32;
        let (_, end) = turn_around(&of.sleeps, q.last);
        let mut does: Vec<u32> = had.service.iter().copied().filter(|&m| self.spans(m, q)).collect();
        does.retain(|&m| (q.received.1..=end).contains(&self.extras[m as usize].sent_ns));
        if of.asks_once {
            return (does, true);
        }
        let from = asks.partition_point(|a| a.0 < q.received.1);
        let mut sure = true;
        // What it asks for a message that waited in line says nothing of those that it had at hand.
        let of_hand = asks[from..].iter().take_while(|a| a.0 <= end).filter(|a| !self.in_line[a.1]);
        for (n, &(_, c)) in of_hand.enumerate() {
            match self.told[c] {
                Whose::Of(m) if n < ASKS => does.push(m),
                _ => sure = false,
            }
            if !sure {
                break;
            }
        }
        does.sort_unstable();
        does.dedup();
        (does, sure)
    }
}
