//! A step as lines: prose is wrapped; commands are whole, on lines of their own, so that they can be copied.
//!
//! In: a step of the diagnosis: prose, or `command  # why; undo: command`, or prose that ends in one of these or in a
//! command of ours after a colon. Out: lines without indentation; everything but prose and commands is a comment.

use super::text::{clean, wrap};

/// The lines of a step; prose has at most `columns`. `fix` is the first cause's, to be found at the step's end.
pub(super) fn lines(step: &str, fix: Option<&str>, columns: usize) -> Vec<String> {
    // A fix may be advice without a command: that is prose.
    let held = fix.filter(|fix| fix.contains("  # ") && step.ends_with(fix)).map(|fix| step.len() - fix.len());
    let ours = step.find(": tailsight ").map(|at| at + 2);
    let Some(at) = held.or(ours) else {
        return match step.split_once("  # ") {
            Some(_) => command(step, columns),
            None => wrap(step, columns, ""),
        };
    };
    let (before, rest) = step.split_at(at);
    let mut out = match before.trim() {
        "" => Vec::new(),
        text => wrap(text, columns, ""),
    };
    let mut command = command(rest, columns);
    if let (Some(last), [only]) = (out.last_mut(), command.as_slice())
        && last.chars().count() + 1 + only.chars().count() <= columns
    {
        *last += &format!(" {only}");
        return out;
    }
    out.append(&mut command);
    out
}

fn command(text: &str, columns: usize) -> Vec<String> {
    let text = clean(text);
    let Some((run, comment)) = text.split_once("  # ") else { return vec![text] };
    let mut out = vec![run.to_owned()];
    let (why, undo) = comment.split_once("; undo: ").map_or((comment, None), |(why, undo)| (why, Some(undo)));
    out.extend(wrap(why, columns.saturating_sub(2), "").into_iter().map(|row| format!("# {row}")));
    // It can be copied like the command.
    out.extend(undo.map(|undo| format!("# undo: {undo}")));
    out
}

#[cfg(test)]
mod tests {
    use super::lines;

    const FIX: &str = "renice -n 5 -p 7  # be nice; undo: renice -n 0 -p 7";

    #[test]
    fn a_fix_stands_on_lines_of_its_own() {
        let whole = ["renice -n 5 -p 7", "# be nice", "# undo: renice -n 0 -p 7"];
        assert_eq!(lines(FIX, Some(FIX), 20), whole);
        assert_eq!(lines(FIX, None, 20), whole);
        let step = format!("try this: {FIX}");
        assert_eq!(lines(&step, Some(FIX), 20), ["try this:", whole[0], whole[1], whole[2]]);
    }

    #[test]
    fn a_command_of_ours_is_whole() {
        let step = "see it: tailsight report run";
        assert_eq!(lines(step, None, 80), [step]);
        assert_eq!(lines(step, None, 20), ["see it:", "tailsight report run"]);
    }

    #[test]
    fn a_fix_in_prose_and_the_reason_of_a_command_are_wrapped() {
        let advice = "give it more cores";
        assert_eq!(lines(&format!("try: {advice}"), Some(advice), 12), ["try: give it", "more cores"]);
        let long = "run me  # because it is needed; undo: do not run me again";
        assert_eq!(lines(long, None, 14), ["run me", "# because it", "# is needed", "# undo: do not run me again"]);
    }

    #[test]
    fn prose_is_wrapped() {
        assert_eq!(lines("give it more cores", None, 10), ["give it", "more cores"]);
    }
}
