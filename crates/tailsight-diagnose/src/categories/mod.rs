//! The category table: owners of time to categories and names (NSight §5.2, "a user configurable file").
//!
//! In: an owner with its leg and role. Out: a [`CategoryMatch`]: category, subject, and the index of the first frame with which the
//! nesting rule may refine the name. The default table is `data/categories.toml`, which also documents the fields. [`functions`]
//! categorises kernel functions and stacks of them.

pub mod functions;
mod layer;
mod meaning;
mod parse;
mod running;
mod subsystems;
mod values;

pub use meaning::Meaning;

use tailsight_kernel::syscalls;
use tailsight_lifetime::{Context, Frame, Interrupt, Leg, NamedFrame, Owner, Role};

use crate::cause::{Category, Subject, names};
use crate::functions::parked::ParkedPlaces;
use crate::glob;
use functions::FunctionTable;

/// Contexts by the names that rules use.
const CONTEXTS: [&str; 8] = ["own", "ahead", "sibling", "foreign", "profiler", "idle", "blocked", "unknown"];

/// An ordered list of rules; the first that matches decides.
#[derive(Clone, Debug)]
pub struct CategoryTable {
    rules: Vec<Rule>,
    functions: FunctionTable,
    /// What goroutines of the run wait for, by where they do.
    parked: ParkedPlaces,
}

/// One rule: what it matches, and what it says.
#[derive(Clone, Debug, Default)]
struct Rule {
    /// None: the category that the kernel stack of the sleep has.
    category: Option<Category>,
    name: String,
    leg: Vec<Leg>,
    role: Option<Role>,
    context: Vec<&'static str>,
    comm: Vec<String>,
    kernel: Option<bool>,
    recorder: Option<bool>,
    interrupt: Option<bool>,
    frame: Vec<String>,
    inside: Vec<String>,
    /// The outermost frame.
    first: Vec<String>,
    /// `category/sub` of the kernel stack of a sleep.
    wait: Vec<String>,
    /// Of the application itself, or of another.
    packet: Option<bool>,
    syscall: Vec<String>,
    /// What a sleep in it waits for.
    waits_for: Vec<syscalls::Wait>,
    uninterruptible: Option<bool>,
    nest: Option<bool>,
}

/// What the table says about an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryMatch {
    /// The category.
    pub category: Category,
    /// The task, function or flow that did it.
    pub name: String,
    /// The same as data.
    pub subject: Subject,
    /// The frames from here on may refine the name, of those that do not only say where in the program it was; the number of
    /// them when none may.
    pub nested_from: usize,
}

/// The frames of an owner that may refine its name, outermost first. `nested_from`: as in its [`CategoryMatch`]. Traced functions refine
/// whatever they were in, but for what interrupted them; the application's own time in one has its name already.
pub fn refining(owner: &Owner, nested_from: usize) -> Vec<&Frame> {
    let frames = &owner.frames;
    let interrupted = |f: &Frame| f.is_interrupt(Interrupt::Softirq);
    let own = owner.context == Context::Own && matches!(frames.last(), Some(Frame::Function { kernel: false, .. }));
    let function = |f: &&Frame| !own && matches!(f, Frame::Function { kernel: false, .. });
    let functions = frames.iter().filter(|_| !frames.iter().any(interrupted)).filter(function);
    functions.chain(frames.iter().filter(|f| !f.is_of_program()).skip(nested_from)).collect()
}

impl CategoryMatch {
    /// Of a subject, which gives it its name.
    pub(crate) fn new(category: Category, subject: Subject, nested_from: usize) -> CategoryMatch {
        CategoryMatch { category, name: names::base(&subject), subject, nested_from }
    }
}

/// What is known of a task beside its thread's name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task<'a> {
    /// What it is to be called: its process, or threads of like names. `None`: as the thread.
    pub name: Option<&'a str>,
    /// Whether it is the recorder. `None`: not known; then it is whoever is called `tailsight`.
    pub recorder: Option<bool>,
}

/// How the recorder is called unless somebody renamed it.
const RECORDER: &str = "tailsight";

/// An owner with what the rules ask about it.
struct Seen<'a> {
    owner: &'a Owner,
    app: &'a str,
    leg: Leg,
    role: Role,
    kind: &'static str,
    /// The thread.
    comm: &'a str,
    /// What it is called.
    task: &'a str,
    recorder: bool,
    kernel: Option<bool>,
    /// Where the innermost handler that followed an interrupt begins.
    interrupt: Option<usize>,
    named: Vec<NamedFrame>,
    /// Their names.
    frames: Vec<String>,
    /// The system call, and its frame.
    syscall: Option<(usize, String)>,
    /// What a sleep in it waits for.
    waits_for: Option<syscalls::Wait>,
    uninterruptible: Option<bool>,
    /// What the kernel stack of the sleep says.
    wait: Option<Wait>,
    /// Who ended the sleep, and its frame.
    waker: Option<(usize, String)>,
    /// The server that was waited for.
    peer: Option<String>,
}

/// The function table's verdict on the stack of a sleep.
struct Wait {
    category: Category,
    name: String,
    id: String,
}

impl Default for CategoryTable {
    fn default() -> CategoryTable {
        CategoryTable::parse(include_str!("../../data/categories.toml"), "categories.toml")
            .expect("the built-in table is checked by this crate's tests")
    }
}

impl CategoryTable {
    /// The category and name of an owner met in this leg (not [`Leg::Total`]) and role. `task`: what else is known of its task.
    pub fn classify(
        &self,
        owner: &Owner,
        task: &Task<'_>,
        leg: Leg,
        role: Role,
        app: &str,
        symbols: &[String],
    ) -> CategoryMatch {
        if let Some(said) = self.parked.of(owner) {
            return said.clone();
        }
        // Where in the program it was changes nothing but the name.
        if owner.frames.iter().any(Frame::is_of_program) {
            return self.of_program(owner, task, leg, role, app, symbols);
        }
        if owner.frames.iter().any(running::is_kernel_function) {
            return self.of_kernel_functions(owner, task, leg, role, app, symbols);
        }
        let mut seen = Seen::new(owner, leg, role, app, symbols);
        seen.task = task.name.unwrap_or(seen.comm);
        seen.recorder = task.recorder.unwrap_or(seen.kind == "foreign" && seen.comm == RECORDER);
        seen.wait = self.wait(owner, symbols);
        if let Some(verdict) = self.by_user(&seen) {
            return verdict;
        }
        match self.rules.iter().find(|r| r.matches(&seen)) {
            Some(rule) => rule.verdict(&seen),
            None => CategoryMatch::new(Category::Unexplained, unexplained(), owner.frames.len()),
        }
    }

    /// As [`CategoryTable::classify`], of an owner whose frames also say where in the program it was. The application's own time in a
    /// traced function has the function's name.
    fn of_program(
        &self,
        owner: &Owner,
        task: &Task<'_>,
        leg: Leg,
        role: Role,
        app: &str,
        symbols: &[String],
    ) -> CategoryMatch {
        let frames: Vec<Frame> = owner.frames.iter().filter(|f| !f.is_of_program()).copied().collect();
        let plain = Owner { context: owner.context.clone(), frames };
        let verdict = self.classify(&plain, task, leg, role, app, symbols);
        let function = owner.frames.last().filter(|f| matches!(f, Frame::Function { .. }));
        match function.filter(|_| owner.context == Context::Own && verdict.category == Category::AppProcessing) {
            Some(frame) => {
                let subject = Subject::Frame { frame: shown_frame(&frame.named(symbols)) };
                CategoryMatch::new(verdict.category, subject, plain.frames.len())
            }
            None => verdict,
        }
    }

    /// What a user's entries for softirqs, vectors and kernel threads say. Theirs go before the rules; the built-in ones
    /// have no say here, for the rules have.
    fn by_user(&self, seen: &Seen<'_>) -> Option<CategoryMatch> {
        let (name, meaning) = match seen.innermost() {
            Some(frame) => (frame, self.functions.user_handler(frame)),
            None => (seen.comm, None),
        };
        let handler = meaning.map(|m| (name, m));
        let thread = || {
            let is_thread = seen.kernel == Some(true) && seen.interrupt.is_none();
            let meaning = is_thread.then(|| self.functions.user_thread(seen.comm)).flatten()?;
            Some((seen.thread(), meaning))
        };
        let (name, meaning) = handler.or_else(thread)?;
        let subject = Subject::named(shown(&format!("{name} ({})", meaning.sub)));
        Some(CategoryMatch::new(meaning.category, subject, seen.frames.len()))
    }

    /// What the kernel stack of a sleep says, when there is one and a function of it is known.
    fn wait(&self, owner: &Owner, symbols: &[String]) -> Option<Wait> {
        let symbol = owner.frames.iter().find_map(|f| match *f {
            Frame::Stack { symbol } => Some(symbol as usize),
            _ => None,
        })?;
        let stack: Vec<&str> = symbols.get(symbol)?.split(';').filter(|f| !f.is_empty()).collect();
        let said = self.functions.category_of_wait(&stack)?;
        Some(Wait { category: said.category, name: said_by(&said), id: format!("{}/{}", said.category, said.sub) })
    }

    /// With what goroutines of a run wait for at the places where they do: the functions there tell it, before any rule.
    #[must_use]
    pub fn with_parked(&self, parked: ParkedPlaces) -> CategoryTable {
        CategoryTable { parked, ..self.clone() }
    }

    /// Kernel functions, system calls, softirqs, vectors and kernel threads to categories: the user's entries first.
    pub fn functions(&self) -> &FunctionTable {
        &self.functions
    }

    /// How many rules it has.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

impl<'a> Seen<'a> {
    fn new(owner: &'a Owner, leg: Leg, role: Role, app: &'a str, symbols: &[String]) -> Seen<'a> {
        let (kind, comm, kernel) = match &owner.context {
            Context::Own => ("own", "", None),
            Context::Ahead => ("ahead", "", None),
            Context::Sibling { comm } => ("sibling", comm.as_str(), None),
            Context::Foreign { comm, kernel } => ("foreign", comm.as_str(), Some(*kernel)),
            Context::Profiler => ("profiler", "", None),
            Context::Idle => ("idle", "", None),
            Context::Blocked => ("blocked", "", None),
            Context::Unknown => ("unknown", "", None),
        };
        let follows_interrupt = |f: &Frame| f.is_interrupt(Interrupt::Softirq);
        let call = owner.frames.iter().enumerate().find_map(|(i, f)| match *f {
            Frame::Syscall { nr } | Frame::SleepIn { nr, .. } => Some((i, nr)),
            _ => None,
        });
        let uninterruptible = owner.frames.iter().find_map(|f| match *f {
            Frame::SleepIn { uninterruptible, .. } => Some(uninterruptible),
            _ => None,
        });
        let named: Vec<NamedFrame> = owner.frames.iter().map(|f| f.named(symbols)).collect();
        Seen {
            owner,
            app,
            leg,
            role,
            kind,
            comm,
            task: comm,
            recorder: false,
            kernel,
            interrupt: owner.frames.iter().rposition(follows_interrupt),
            frames: named.iter().map(NamedFrame::to_string).collect(),
            named,
            syscall: call.map(|(i, nr)| (i, syscalls::name(nr))),
            waits_for: call.and_then(|(_, nr)| syscalls::wait(nr)),
            uninterruptible,
            wait: None,
            waker: owner.frames.iter().enumerate().find_map(|(i, f)| match *f {
                Frame::WokenBy { symbol } => Some((i, symbols.get(symbol as usize).cloned().unwrap_or_default())),
                _ => None,
            }),
            peer: owner.frames.iter().find_map(|f| match *f {
                Frame::Peer { symbol, .. } | Frame::Turn { symbol, .. } => {
                    symbols.get(symbol as usize).filter(|s| !s.is_empty()).cloned()
                }
                _ => None,
            }),
        }
    }

    /// How many of the first frames say why another thread was waited for, not what that one did.
    fn because(&self) -> usize {
        if !matches!(self.owner.context, Context::Sibling { .. }) {
            return 0;
        }
        let frames = &self.owner.frames;
        let why = usize::from(matches!(
            frames.first(),
            Some(Frame::SleepIn { .. } | Frame::ConnectionSetup | Frame::TaskReady | Frame::JobQueued)
        ));
        why + usize::from(frames.get(why) == Some(&Frame::Serving))
    }

    fn innermost(&self) -> Option<&str> {
        self.frames.last().map(String::as_str)
    }

    /// The thread without its core or device.
    fn thread(&self) -> &str {
        self.comm.split('/').next().unwrap_or(self.comm)
    }

    /// The system call, when it is known which.
    fn call(&self) -> Option<&str> {
        self.syscall.as_ref().map(|(_, name)| name.as_str()).filter(|name| *name != "?")
    }

    fn peer(&self) -> &str {
        self.peer.as_deref().unwrap_or("another server")
    }
}

impl Rule {
    fn matches(&self, s: &Seen<'_>) -> bool {
        let listed = |list: &[String], text: &str| list.is_empty() || glob::any(list, text);
        (self.leg.is_empty() || self.leg.contains(&s.leg))
            && self.role.is_none_or(|r| r == s.role)
            && (self.context.is_empty() || self.context.contains(&s.kind))
            && (listed(&self.comm, s.comm) || listed(&self.comm, s.task))
            && self.recorder.is_none_or(|r| r == s.recorder)
            && (self.kernel.is_none() || self.kernel == s.kernel)
            && self.interrupt.is_none_or(|i| i == s.interrupt.is_some())
            && listed(&self.frame, s.innermost().unwrap_or("none"))
            && (self.first.is_empty() || s.frames.first().is_some_and(|f| glob::any(&self.first, f)))
            && (self.wait.is_empty() || s.wait.as_ref().is_some_and(|w| glob::any(&self.wait, &w.id)))
            && (self.inside.is_empty() || s.frames.iter().any(|f| glob::any(&self.inside, f)))
            && self
                .packet
                .is_none_or(|own| matches!(s.owner.frames.last(), Some(Frame::Packet { own: o, .. }) if *o == own))
            && (self.syscall.is_empty() || s.syscall.as_ref().is_some_and(|(_, name)| glob::any(&self.syscall, name)))
            && (self.waits_for.is_empty() || s.waits_for.is_some_and(|wait| self.waits_for.contains(&wait)))
            && (self.uninterruptible.is_none() || self.uninterruptible == s.uninterruptible)
    }

    fn verdict(&self, s: &Seen<'_>) -> CategoryMatch {
        let category = match (self.category, &s.wait) {
            (Some(category), _) => category,
            (None, Some(wait)) => wait.category,
            (None, None) => Category::Unexplained,
        };
        CategoryMatch::new(category, self.subject(s), self.nested_from(s))
    }

    /// Where the frames begin that may refine the name.
    fn nested_from(&self, s: &Seen<'_>) -> usize {
        let all = s.frames.len();
        let named = |placeholder: &str| self.name.contains(placeholder);
        if !self.nest.unwrap_or(s.kind != "foreign" || s.interrupt.is_some()) || named("{frame}") {
            all
        } else if !self.wait.is_empty() {
            // The stack has said what its frame and those before it mean; who ended the sleep may still name it.
            s.waker.as_ref().filter(|_| !named("{waker}")).map_or(all, |(at, _)| *at)
        } else if named("{syscall}") {
            s.syscall.as_ref().map_or(all, |(at, _)| at + 1)
        } else if named("{waker}") {
            all
        } else {
            s.interrupt.map_or(s.because(), |at| at + 1)
        }
    }

    /// Who or what it is: the rule's name with its placeholders filled in. Names that say who did what to whom are data of
    /// their own; others are what the table says.
    fn subject(&self, s: &Seen<'_>) -> Subject {
        let call = || s.call().map(str::to_owned);
        let waker = || shown(s.waker.as_ref().map_or("unknown", |(_, name)| name));
        match (self.name.as_str(), s.named.last()) {
            ("{comm}", _) => Subject::Task { name: shown(s.task) },
            ("{thread}", _) => Subject::Task { name: shown(s.thread()) },
            ("{comm} holds it", _) => Subject::Holder { name: shown(s.task) },
            ("{comm} (other thread)", _) => Subject::OtherThread { name: shown(s.task) },
            ("{app}", _) => Subject::Application { name: shown(s.app) },
            ("{app} (other threads)", _) => Subject::OtherThreads { application: shown(s.app) },
            ("{frame}", Some(frame)) => Subject::Frame { frame: shown_frame(frame) },
            ("{syscall}", _) => Subject::SystemCall { call: call() },
            ("waits in {syscall}", _) => Subject::WaitIn { call: call(), waker: None, until_timer: false },
            ("waits in {syscall} until a timer", _) => Subject::WaitIn { call: call(), waker: None, until_timer: true },
            ("put aside, its thread in {syscall}", _) => Subject::PutAside { call: call() },
            ("waits in {syscall} for {waker}", _) => {
                Subject::WaitIn { call: call(), waker: Some(waker()), until_timer: false }
            }
            ("waits in {syscall} for {comm}", _) => {
                Subject::WaitIn { call: call(), waker: Some(shown(s.task)), until_timer: false }
            }
            ("waits for {waker}", _) => Subject::WaitFor { waker: waker() },
            ("its turn to ask {peer}", _) => Subject::Turn { server: shown(s.peer()) },
            ("{peer}", _) => Subject::Peer { name: shown(s.peer()) },
            _ => Subject::named(shown(&self.filled(s))),
        }
    }

    /// The name, filled in in one pass, so that a task named like a placeholder stays what it is.
    fn filled(&self, s: &Seen<'_>) -> String {
        let mut name = self.name.clone();
        for (at, _) in self.name.rmatch_indices('{') {
            let end = at + self.name[at..].find('}').map_or(0, |e| e + 1);
            let value = match &self.name[at..end] {
                "{comm}" => s.task,
                "{thread}" => s.thread(),
                "{app}" => s.app,
                "{frame}" => s.innermost().unwrap_or("user"),
                "{syscall}" => s.call().unwrap_or(names::UNKNOWN_CALL),
                "{wait}" => s.wait.as_ref().map_or("unknown", |w| &w.name),
                "{waker}" => s.waker.as_ref().map_or("unknown", |(_, name)| name),
                "{peer}" => s.peer(),
                _ => continue,
            };
            name.replace_range(at..end, value);
        }
        if name.is_empty() { "(unnamed)".into() } else { name }
    }
}

/// The table's finer name. A function that no entry names was judged by a neighbour in the call tree: the name says by which.
fn said_by(said: &functions::StackClass<'_>) -> String {
    if said.via_neighbour { format!("{} (by {})", said.sub, said.function) } else { said.sub.to_owned() }
}

/// What has no known owner.
pub(crate) fn unexplained() -> Subject {
    Subject::named(Category::Unexplained.as_str())
}

/// A name or path as it may be shown: whoever started a task chose its name, and a terminal obeys control characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A frame as it may be shown.
pub(crate) fn shown_frame(frame: &NamedFrame) -> NamedFrame {
    NamedFrame { kind: frame.kind, of: frame.of.as_deref().map(shown) }
}
