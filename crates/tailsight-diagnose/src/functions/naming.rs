//! How functions are called: by the innermost one of the program itself, with the library's function beside it.
//!
//! In: a part of a cause's call tree. Out: [`FunctionPart`] with its names.

use tailsight_lifetime::Threshold;
use tailsight_trace::samples::{FrameRow, JIT};

use super::Search;
use super::runtimes::Interpreter;
use super::tree::{Scale, Tree};
use crate::model::{FunctionPart, RuntimePart};

/// A part of a cause's call tree with its names.
pub(super) struct Named {
    pub(super) part: FunctionPart,
    /// The frame that it is named by, by number.
    pub(super) number: Option<u32>,
    /// The node of that frame, where it is below the part and does not have all of its time.
    pub(super) below: Option<usize>,
}

impl Search<'_> {
    /// A function as a reader knows it: what a runtime is known to do there, else the innermost function of the program itself, not the
    /// library's that it called.
    /// What it called and is another one of `parts` has its name itself.
    pub(super) fn named(&self, tree: &Tree, node: usize, parts: &[usize], scale: &Scale) -> Named {
        let own = tree.path(node);
        let below = tree.hottest_below(node, parts, scale);
        let left = |node: usize| tree.samples_without(node, parts)[0] as f64;
        let samples = left(node);
        let holds = |part: f64| below.iter().take_while(|&&n| left(n) >= samples * part).count();
        let frames = |numbers: &[u32]| -> Vec<&FrameRow> {
            numbers.iter().filter_map(|&f| self.sampled.samples.frames.get(f as usize)).collect()
        };
        let inner: Vec<u32> = below.iter().filter_map(|&n| tree.node(n).frame).collect();
        let path = frames(&own);
        let known = |f: &FrameRow| self.options.runtimes.known(f);
        let inside = frames(&inner[..holds(Threshold::MostOfFunction.share()).min(inner.len())]);
        let on_way = path.iter().chain(&inside).copied().find_map(|f| Some((f, known(f)?)));
        // It may be done in several functions: PostgreSQL waits for a row in three, of which none has most of the time.
        let of_frame = |frame: u32| self.sampled.samples.frames.get(frame as usize).and_then(known);
        let done = || tree.done_below(node, parts, of_frame);
        let mostly = || {
            done()
                .into_iter()
                .find(|&(_, weight)| weight as f64 >= samples * Threshold::MostOfFunction.share())
                .map(|(r, _)| r)
        };
        let runtime = on_way.map(|(_, runtime)| runtime).or_else(mostly);
        // Where what it called has all of its time, that is it as well.
        let all_in = frames(&inner[..holds(Threshold::AllOfFunction.share()).min(inner.len())]);
        let whole: Vec<&FrameRow> = path.iter().chain(&all_in).copied().collect();
        // As far as only the focus goes that way: a caller that no sample of the reference has, because a leaf hides it, says less.
        let only_below = inner.iter().take(all_in.len()).take_while(|&&f| !tree.is_in_reference(f)).count();
        let only = &whole[..path.len() + only_below];
        let last = path.last().copied().cloned().unwrap_or_default();
        // What the program called is said with the program's function, unless nobody asked for it.
        let asked_by =
            |frame: &FrameRow| whole.iter().rev().skip_while(|f| **f != frame).find(|f| self.is_program_s(f));
        let (named, inside) = match on_way {
            Some((frame, runtime)) => match asked_by(frame) {
                Some(own) if !runtime.on_its_own_account && !self.is_program_s(frame) => {
                    // What Go's own package does is said of the runtime; the library's function that waited there says more.
                    let called = whole.iter().rev().skip_while(|f| **f != frame).take_while(|f| *f != own).last();
                    let called = called.filter(|_| frame.function.starts_with("runtime."));
                    ((*own).clone(), Some(called.copied().unwrap_or(frame).name()))
                }
                _ => (frame.clone(), None),
            },
            None => match self.named_of_interpreter(&whole, &inside) {
                Some(frame) => (frame.clone(), None),
                None => self.named_of_program(&path, &whole, only, &last),
            },
        };
        // That a runtime had no task to run says nothing of what it called either.
        let below_named = whole.iter().rev().take_while(|f| ***f != named);
        let idle = below_named.copied().chain([&named]).any(|f| self.options.runtimes.is_idle(f));
        let inside = inside.filter(|_| !idle);
        let callers = whole.iter().rev().skip_while(|f| ***f != named).skip(1);
        let callers = callers.copied().filter(|f| !f.function.is_empty() && **f != named);
        let nearest = callers.clone().next();
        // What runs any function does not tell who called: the program's own function, or another that was compiled, does.
        let tells = |f: &&FrameRow| self.tells(f) && (self.is_program_s(f) || f.module == JIT);
        let caller = nearest.filter(|f| self.tells(f)).or_else(|| callers.clone().find(tells)).or(nearest);
        let numbers = own.iter().chain(&inner).copied();
        let number = numbers.rev().find(|&f| self.sampled.samples.frames.get(f as usize) == Some(&named));
        let some = &below[holds(Threshold::AllOfFunction.share()).min(below.len())..];
        let below = some.iter().rev().copied().find(|&n| number.is_some() && tree.node(n).frame == number);
        let interpreter = self.interpreter_of(&named, &whole).filter(|_| runtime.is_none());
        let part = FunctionPart {
            name: interpreter.map_or_else(|| named.name(), |i| format!("{}'s interpreter", i.of)),
            inside: if interpreter.is_some() { Some(last.name()) } else { inside },
            caller: caller.filter(|_| interpreter.is_none()).map(FrameRow::name),
            between: named
                .function
                .is_empty()
                .then(|| [named.exported_before.clone(), named.exported_after.clone()])
                .filter(|names| interpreter.is_none() && names.iter().all(|name| !name.is_empty())),
            interpreter: interpreter.map(|i| i.of.clone()),
            interpreter_tells_when: interpreter.and_then(|i| self.options.runtimes.tells_when(&i.of)),
            waits_for_any: interpreter.is_none() && self.options.runtimes.is_idle(&named),
            module: named.module.clone(),
            build_id: named.build_id.clone(),
            source: named.source.clone(),
            kernel: named.kernel,
            runtime: runtime.map(|r| RuntimePart {
                category: "runtime".into(),
                of: r.of.clone(),
                does: r.does.clone(),
                fix: r.fix.clone(),
                documented: r.documented.clone(),
                on_its_own_account: r.on_its_own_account,
            }),
            path: path.iter().map(|f| f.name()).collect(),
            ..FunctionPart::default()
        };
        Named { part, number, below }
    }

    /// Where an interpreter, and no function of a program that was recorded, had the time: the innermost of its functions that has most of it
    /// and tells what was done. What calls any function of a script says nothing, though only some requests may have come by it.
    fn named_of_interpreter<'a>(&self, whole: &[&FrameRow], inside: &[&'a FrameRow]) -> Option<&'a FrameRow> {
        if whole.iter().any(|f| self.is_program_s(f)) || !whole.last().is_some_and(|f| self.is_interpreter_s(f)) {
            return None;
        }
        inside.iter().rev().copied().find(|f| self.is_interpreter_s(f) && !f.function.is_empty() && self.tells(f))
    }

    fn is_interpreter_s(&self, frame: &FrameRow) -> bool {
        self.options.runtimes.interpreter_in(&frame.module).is_some()
    }

    /// The function that a part is named by, and the library's that its time was in where that is another. `whole`: its path, and on as far as
    /// all of its time went one way; `only`: its path, and on as far as besides no sample of the reference went that way.
    fn named_of_program(
        &self,
        path: &[&FrameRow],
        whole: &[&FrameRow],
        only: &[&FrameRow],
        last: &FrameRow,
    ) -> (FrameRow, Option<String>) {
        let inside = |named: &FrameRow, last: &FrameRow| (*last != *named).then(|| last.name());
        let program = |f: &&&FrameRow| self.is_in_program(f) && self.tells(f);
        let above = only.iter().rev().find(program);
        let below = || whole[path.len()..].iter().rev().find(program);
        // One without a name, as in a stripped program, is named by its place, if it did more than call one that has a name. An exported
        // function that it is below may be any other.
        let nameless = |f: &&&FrameRow| f.function.is_empty() && **f == last;
        let own = above.filter(|f| !nameless(f)).or_else(below).or(above);
        if let Some(own) = own {
            // A place in a stripped interpreter tells less than what that called.
            let tells_where = |f: &&&FrameRow| !(f.function.is_empty() && self.is_interpreter_s(f));
            let called = whole.iter().rev().take_while(|f| *f != own).filter(tells_where).last();
            let called = called.filter(|f| !self.options.runtimes.only_waits(f)).or(whole.last());
            let of_library = called.filter(|f| !self.is_in_program(f));
            return ((*own).clone(), of_library.and_then(|called| inside(own, called)));
        }
        let callers = path.iter().rev().copied();
        let of_program = |f: &&FrameRow| !f.kernel && !is_library(f) && !f.function.is_empty();
        let nearest = callers.clone().find(of_program);
        let program = callers.clone().find(|f| of_program(f) && self.tells(f)).or(nearest);
        // Without a name a function is named by its place, not by an exported one of the same file that it is below.
        let placed = last.function.is_empty() && is_file(last) && nearest.is_none_or(|f| f.module == last.module);
        let named = match program {
            Some(frame) if !placed && (is_library(last) || last.function.is_empty()) => frame,
            _ => last,
        };
        (named.clone(), inside(named, last))
    }

    /// Whether a function with a name is of the program itself: not of a library, nor of the interpreter that runs it.
    pub(super) fn is_program_s(&self, frame: &FrameRow) -> bool {
        self.is_in_program(frame) && !frame.function.is_empty()
    }

    fn is_in_program(&self, frame: &FrameRow) -> bool {
        frame.own && !is_library(frame) && !self.is_interpreter_s(frame)
    }

    /// The interpreter that ran a function of the program which was not recorded, if `named` is a function by which it runs any program, or
    /// one without a name in it.
    fn interpreter_of(&self, named: &FrameRow, whole: &[&FrameRow]) -> Option<&Interpreter> {
        if self.tells(named) || whole.iter().any(|f| self.is_program_s(f)) {
            return None;
        }
        self.options.runtimes.interpreter_in(&named.module).filter(|is| is.tells_when.is_some())
    }
}

/// A function's name as readers know it, without the types of its arguments and of its result: `Journal::compact` of
/// `Journal::compact(std::vector<int>&) const`, `Main.parse` of `java.util.Map Main.parse(java.lang.String)`.
#[must_use]
pub fn without_arguments(name: &str) -> &str {
    let signature = name.trim_end_matches(" const");
    let Some(arguments) = signature.strip_suffix(')') else { return name };
    // Where the last parenthesis opens.
    let mut open = 1;
    let begin = arguments.char_indices().rev().find(|(_, c)| {
        open += i32::from(*c == ')') - i32::from(*c == '(');
        open == 0
    });
    match begin {
        Some((at, _)) if at > 0 => without_result(name[..at].trim_end()),
        _ => name,
    }
}

/// Names of one function that have blanks outside of brackets: what is before the last one is no type.
const BLANKS: [&str; 3] = ["operator", "thunk to", "clone"];

/// A name of a function that had arguments, without the type before it.
fn without_result(name: &str) -> &str {
    if BLANKS.iter().any(|word| name.contains(word)) {
        return name;
    }
    let mut open = 0;
    let blank = name.char_indices().rev().find(|(_, c)| {
        open += i32::from(matches!(c, '>' | ')' | ']' | '}')) - i32::from(matches!(c, '<' | '(' | '[' | '{'));
        *c == ' ' && open == 0
    });
    blank.map_or(name, |(at, _)| &name[at + 1..])
}

/// Whether a frame's place means something outside of the process.
fn is_file(frame: &FrameRow) -> bool {
    !frame.module.is_empty() && !frame.module.starts_with('[')
}

/// Whether a function is of what programs are built on, so that the caller says more. The standard library of Rust, and templates of that of
/// C++, are in the program itself.
fn is_library(frame: &FrameRow) -> bool {
    const MODULES: [&str; 8] = ["libc.", "libc-", "ld-", "libpthread", "libm.", "libstdc++", "libgcc_s", "[vdso]"];
    const NAMESPACES: [&str; 3] = ["std::", "core::", "alloc::"];
    let name = frame.function.trim_start_matches('<');
    MODULES.iter().any(|prefix| frame.module.starts_with(prefix)) || NAMESPACES.iter().any(|n| name.starts_with(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_arguments_are_left_out_and_nothing_else() {
        for (name, short) in [
            ("node::InternalMakeCallback(node::Environment*, v8::Local<v8::Object>)", "node::InternalMakeCallback"),
            ("Journal::compact(std::vector<int>&) const", "Journal::compact"),
            ("(anonymous namespace)::parse(char const*)", "(anonymous namespace)::parse"),
            ("handle(int)::{lambda()#1}::operator()() const", "handle(int)::{lambda()#1}::operator()"),
            ("main.(*Server).handle", "main.(*Server).handle"),
            ("(anonymous)", "(anonymous)"),
            ("unbalanced)", "unbalanced)"),
            ("rs::main::{{closure}}", "rs::main::{{closure}}"),
        ] {
            assert_eq!(without_arguments(name), short);
        }
    }

    /// The compiler of a JVM writes the type of the result before the name: "java.util.Map Main.parse" was the function.
    #[test]
    fn the_type_of_a_result_is_left_out() {
        for (name, short) in [
            ("java.util.Map Main.parse(java.lang.String)", "Main.parse"),
            ("void Main$Pool.run()", "Main$Pool.run"),
            ("std::map<int, long> shop::load<int, long>(int)", "shop::load<int, long>"),
            ("non-virtual thunk to Page::render(int)", "non-virtual thunk to Page::render"),
            ("Decimal::operator bool() const", "Decimal::operator bool"),
            ("<Page as Render<A, B>>::render", "<Page as Render<A, B>>::render"),
        ] {
            assert_eq!(without_arguments(name), short);
        }
    }

    #[test]
    fn what_programs_are_built_on_is_told_by_module_and_name() {
        let is = |function: &str, module: &str| {
            is_library(&FrameRow { function: function.into(), module: module.into(), ..FrameRow::default() })
        };
        assert!(is("clock_nanosleep", "libc.so.6") && is("std::sys::thread::unix::sleep", "server"));
        assert!(is("<core::slice::Iter<T> as Iterator>::next", "server") && is("std::sort<int*>", "server"));
        assert!(!is("server::fetch_profile", "server") && !is("stdio_loop", "server"));
    }
}
