//! The hot path: the sampled calls in which the first cause of the table spent its time.
//!
//! In: a diagnosis. Out: a heading, its functions where there are several, and about five lines, the innermost
//! function last; nothing where the run has no samples for it.

use tailsight_diagnose::cause::Subject;
use tailsight_diagnose::functions::without_arguments;
use tailsight_diagnose::model::{Cause, FunctionHow, FunctionPart, HotFrame};
use tailsight_diagnose::{Category, Diagnosis};
use tailsight_trace::samples::JIT;

use super::causes::split;
use super::text::{clean, cut, paint};
use super::{Style, units};

/// Lines of the path: the program's own functions and the innermost calls, with the outermost one before them.
const LINES: usize = 5;
/// Functions beside the first.
const MORE: usize = 3;

/// The lines.
pub(super) fn lines(d: &Diagnosis, style: &Style) -> Vec<String> {
    // Other programs that ran in the target's place are not sampled.
    let sampled = split(d).0.into_iter().filter(|c| c.share > 0.0).find_map(HotPath::of);
    let Some(HotPath { title, path, functions, samples, of_task }) = sampled else { return vec![] };
    let waits = functions.first().is_some_and(|f| f.waits);
    let from = match waits {
        // Its thread went on meanwhile.
        true if of_task => "where the tasks waited".into(),
        true => "where the threads slept".into(),
        false => format!("{} of its time", units::counted(samples, "sample")),
    };
    let mut out = vec![paint(style, "1", &format!("Hot path of {title} ({from}):"))];
    let mut next = 0;
    for (depth, at) in shown(path).into_iter().enumerate() {
        let skipped = if at > next { format!("… {} more ▸ ", at - next) } else { String::new() };
        next = at + 1;
        out.push(line(&path[at], depth, &skipped, style));
    }
    let most = functions.len().min(MORE + 1);
    for function in functions.get(1..most).unwrap_or_default() {
        out.push(cut(&beside(function), style.columns()));
    }
    out
}

/// A path with its owner.
struct HotPath<'a> {
    title: String,
    path: &'a [HotFrame],
    functions: &'a [FunctionPart],
    samples: u64,
    /// Of the wait of a runtime's task.
    of_task: bool,
}

impl HotPath<'_> {
    /// Of a cause; of a queue, that of what delayed the messages ahead, where it is known.
    fn of(cause: &Cause) -> Option<HotPath<'_>> {
        let queue = cause.category == Category::HolBlocking;
        let root = cause.root.first().filter(|root| queue && !root.hot_path.is_empty());
        let path = match root {
            Some(root) => HotPath {
                title: format!("what held the messages ahead, cause {}", cause.rank),
                path: &root.hot_path,
                functions: &root.functions,
                samples: root.samples.unwrap_or_default()[0],
                of_task: false,
            },
            None => HotPath {
                title: format!("cause {}", cause.rank),
                path: &cause.hot_path,
                functions: &cause.functions,
                samples: cause.samples.unwrap_or_default()[0],
                of_task: matches!(cause.subject, Some(Subject::Runtime { .. })),
            },
        };
        (!path.path.is_empty()).then_some(path)
    }
}

/// The frames that are shown, by their places: the innermost one, those of the program itself from the innermost on, then those that a
/// runtime compiled, the outermost one and the next to the innermost, up to so many lines.
fn shown(path: &[HotFrame]) -> Vec<usize> {
    let last = path.len().checked_sub(1);
    let from_innermost = || (0..path.len()).rev();
    let own = from_innermost().filter(|&at| path[at].own);
    let compiled = from_innermost().filter(|&at| is_compiled(&path[at]));
    let usual = (0..path.len()).take(1).chain(from_innermost());
    let mut out: Vec<usize> = vec![];
    for at in last.into_iter().chain(own).chain(compiled).chain(usual) {
        if out.len() < LINES && !out.contains(&at) {
            out.push(at);
        }
    }
    out.sort_unstable();
    out
}

/// Whether it is a method or function that a runtime compiled, and none of what runs those: its name has a class or a file.
fn is_compiled(frame: &HotFrame) -> bool {
    frame.module == JIT && frame.name.contains(['.', ':'])
}

fn line(frame: &HotFrame, depth: usize, skipped: &str, style: &Style) -> String {
    let place = match (frame.source.as_str(), frame.module.as_str()) {
        ("", "") => String::new(),
        ("", module) => format!("  {}", clean(module)),
        (source, _) => format!("  {}", clean(source)),
    };
    let text = format!(
        "{:>6}  {}{skipped}{}{place}",
        units::percent(frame.share),
        "  ".repeat(depth),
        clean(without_arguments(&frame.name))
    );
    cut(&text, style.columns())
}

fn beside(function: &FunctionPart) -> String {
    let how = match function.how {
        _ if function.waits => "waits there",
        FunctionHow::More => "more time than in the reference",
        FunctionHow::Unexpected => "in no sample of the reference",
    };
    let does =
        function.runtime.as_ref().map_or(String::new(), |r| format!(" ({} is {})", clean(&r.of), clean(&r.does)));
    // Code without a name is not its caller, which is named in its place.
    let inside =
        function.inside.as_ref().map_or(String::new(), |inside| format!(" (in {})", clean(without_arguments(inside))));
    format!(
        "  also {}{inside}{does}, {} with what it called: {how}",
        clean(without_arguments(&function.name)),
        units::percent(function.inclusive().clamp(0.0, 1.0))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: usize) -> Vec<HotFrame> {
        let frame = |i| HotFrame { name: format!("f{i}"), module: "server".into(), share: 1.0, ..HotFrame::default() };
        (0..n).map(frame).collect()
    }

    #[test]
    fn a_long_path_keeps_its_outermost_and_its_innermost_calls() {
        assert_eq!(shown(&path(0)), [0; 0]);
        assert_eq!(shown(&path(2)), [0, 1]);
        assert_eq!(shown(&path(5)), [0, 1, 2, 3, 4]);
        assert_eq!(shown(&path(9)), [0, 5, 6, 7, 8]);
    }

    /// A handler of the program was in "… 34 more" between what started the thread and the library that it called.
    #[test]
    fn the_program_s_own_functions_are_not_hidden() {
        let mut path = path(40);
        path[3].own = true;
        path[7].own = true;
        assert_eq!(shown(&path), [0, 3, 7, 38, 39]);
        path.iter_mut().for_each(|frame| frame.own = true);
        assert_eq!(shown(&path), [35, 36, 37, 38, 39]);
    }

    /// Tomcat: `Thread.sleep` and `ConcurrentHashMap.compute` were among "… 18 more" between `clone3` and four functions of libc.
    #[test]
    fn what_a_runtime_compiled_is_not_hidden() {
        let mut path = path(23);
        for (at, name) in [
            (8, "StubRoutines (1)"),
            (11, "Object a.Map.compute(Object)"),
            (12, "Interpreter"),
            (15, "void a.Thread.sleep(long)"),
        ] {
            (path[at].name, path[at].module) = (name.into(), JIT.into());
        }
        assert_eq!(shown(&path), [0, 11, 15, 21, 22]);
    }

    #[test]
    fn a_line_says_how_much_what_and_where() {
        let style = Style::default();
        let frame = HotFrame { source: "slabs.c:120".into(), share: 0.5, ..path(1).remove(0) };
        assert_eq!(line(&frame, 1, "", &style), "50.0 %    f0  slabs.c:120");
        assert!(line(&path(1)[0], 0, "", &style).ends_with("f0  server"));
    }
}
