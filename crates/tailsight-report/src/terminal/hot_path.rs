//! The hot path: the sampled calls in which the first cause of the table spent its time.
//!
//! In: a diagnosis. Out: a heading, its functions where there are several, and about five lines, the innermost
//! function last; nothing where the run has no samples for it.

use tailsight_diagnose::model::{Cause, FunctionHow, FunctionPart, HotFrame};
use tailsight_diagnose::{Category, Diagnosis};

use super::causes::split;
use super::text::{clean, cut, paint};
use super::{Style, units};

/// Lines of the path: the innermost calls, with the outermost one before them.
const LINES: usize = 5;
/// Functions beside the first.
const MORE: usize = 3;

/// The lines.
pub(super) fn lines(d: &Diagnosis, style: &Style) -> Vec<String> {
    // Other programs that ran in the target's place are not sampled.
    let sampled = split(d).0.into_iter().filter(|c| c.share > 0.0).find_map(HotPath::of);
    let Some(HotPath { of, path, functions, samples }) = sampled else { return vec![] };
    let waits = functions.first().is_some_and(|f| f.waits);
    let from = match waits {
        true => "where the threads slept".into(),
        false => format!("{} of its time", units::counted(samples, "sample")),
    };
    let mut out = vec![paint(style, "1", &format!("Hot path of {of} ({from}):"))];
    let (before, shown) = last(path);
    for (depth, frame) in shown.iter().enumerate() {
        let skipped = if depth == 1 && before > 0 { format!("… {before} more ▸ ") } else { String::new() };
        out.push(line(frame, depth, &skipped, style));
    }
    let most = functions.len().min(MORE + 1);
    for function in functions.get(1..most).unwrap_or_default() {
        out.push(cut(&beside(function), style.columns()));
    }
    out
}

/// A path with its owner.
struct HotPath<'a> {
    of: String,
    path: &'a [HotFrame],
    functions: &'a [FunctionPart],
    samples: u64,
}

impl HotPath<'_> {
    /// Of a cause; of a queue, that of what delayed the messages ahead, where it is known.
    fn of(cause: &Cause) -> Option<HotPath<'_>> {
        let queue = cause.category == Category::HolBlocking;
        let root = cause.root.first().filter(|root| queue && !root.hot_path.is_empty());
        let path = match root {
            Some(root) => HotPath {
                of: format!("what held the messages ahead, cause {}", cause.rank),
                path: &root.hot_path,
                functions: &root.functions,
                samples: root.samples.unwrap_or_default()[0],
            },
            None => HotPath {
                of: format!("cause {}", cause.rank),
                path: &cause.hot_path,
                functions: &cause.functions,
                samples: cause.samples.unwrap_or_default()[0],
            },
        };
        (!path.path.is_empty()).then_some(path)
    }
}

/// The outermost frame and the innermost ones; how many between them are left out.
fn last(path: &[HotFrame]) -> (usize, Vec<&HotFrame>) {
    let before = path.len().saturating_sub(LINES);
    let shown = path.iter().enumerate().filter(|&(i, _)| i == 0 || i > before).map(|(_, frame)| frame);
    (before, shown.take(LINES).collect())
}

fn line(frame: &HotFrame, depth: usize, skipped: &str, style: &Style) -> String {
    let place = match (frame.source.as_str(), frame.module.as_str()) {
        ("", "") => String::new(),
        ("", module) => format!("  {}", clean(module)),
        (source, _) => format!("  {}", clean(source)),
    };
    let text =
        format!("{:>6}  {}{skipped}{}{place}", units::percent(frame.share), "  ".repeat(depth), clean(&frame.name));
    cut(&text, style.columns())
}

fn beside(function: &FunctionPart) -> String {
    let how = match function.how {
        _ if function.waits => "waits there",
        FunctionHow::More => "more time",
        FunctionHow::Unexpected => "only in the focus",
    };
    let does =
        function.runtime.as_ref().map_or(String::new(), |r| format!(" ({} is {})", clean(&r.of), clean(&r.does)));
    format!("  also {} {}{does}: {how}", units::percent(function.share.clamp(0.0, 1.0)), clean(&function.name))
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
        let names = |n| {
            let path = path(n);
            let (before, shown) = last(&path);
            (before, shown.iter().map(|f| f.name.clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names(2), (0, "f0 f1".into()));
        assert_eq!(names(5), (0, "f0 f1 f2 f3 f4".into()));
        assert_eq!(names(9), (4, "f0 f5 f6 f7 f8".into()));
    }

    #[test]
    fn a_line_says_how_much_what_and_where() {
        let style = Style::default();
        let frame = HotFrame { source: "slabs.c:120".into(), share: 0.5, ..path(1).remove(0) };
        assert_eq!(line(&frame, 1, "", &style), "50.0 %    f0  slabs.c:120");
        assert!(line(&path(1)[0], 0, "", &style).ends_with("f0  server"));
    }
}
