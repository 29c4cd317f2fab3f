//! A step as lines: prose is wrapped; commands are whole, on lines of their own, so that they can be copied.
//!
//! In: a step of the diagnosis. Out: lines without indentation; everything but prose and commands is a comment.

use tailsight_diagnose::model::NextStep;

use super::text::{clean, wrap};

/// The lines of a step; prose has at most `columns`.
pub(super) fn lines(step: &NextStep, columns: usize) -> Vec<String> {
    let mut commands = Vec::new();
    if let Some(fix) = &step.fix {
        // A fix may be advice without a command: that is prose.
        let Some(command) = fix.shown_command() else { return wrap(&step.to_string(), columns, "") };
        commands.push(clean(&command));
        let why = wrap(&fix.why, columns.saturating_sub(2), "");
        commands.extend(why.into_iter().map(|row| format!("# {row}")));
        // It can be copied like the command.
        commands.extend(fix.undo.iter().map(|undo| format!("# undo: {}", clean(undo))));
    }
    commands.extend(step.command.iter().map(|command| clean(command)));
    if commands.is_empty() {
        return wrap(&step.says, columns, "");
    }
    if step.says.is_empty() {
        return commands;
    }
    let mut out = wrap(&format!("{}:", step.says), columns, "");
    if let (Some(last), [only]) = (out.last_mut(), commands.as_slice())
        && last.chars().count() + 1 + only.chars().count() <= columns
    {
        *last += &format!(" {only}");
        return out;
    }
    out.append(&mut commands);
    out
}

#[cfg(test)]
mod tests {
    use tailsight_diagnose::model::{Fix, NextStep};

    use super::lines;

    fn fix(command: &str, why: &str, undo: &str) -> Fix {
        Fix { command: Some(command.into()), why: why.into(), undo: Some(undo.into()), ..Fix::default() }
    }

    fn step(says: &str, fix: Fix) -> NextStep {
        NextStep { fix: Some(fix), ..NextStep::words(says) }
    }

    #[test]
    fn a_fix_stands_on_lines_of_its_own() {
        let renice = fix("renice -n 5 -p 7", "be nice", "renice -n 0 -p 7");
        let whole = ["renice -n 5 -p 7", "# be nice", "# undo: renice -n 0 -p 7"];
        assert_eq!(lines(&step("", renice.clone()), 20), whole);
        assert_eq!(lines(&step("try this", renice.clone()), 20), ["try this:", whole[0], whole[1], whole[2]]);
        let misses = Fix { fill_in: true, ..renice };
        assert_eq!(lines(&step("", misses), 20)[0], "fill in: renice -n 5 -p 7");
    }

    #[test]
    fn a_command_of_ours_is_whole() {
        let step = NextStep::command("see it", "tailsight report run");
        assert_eq!(lines(&step, 80), ["see it: tailsight report run"]);
        assert_eq!(lines(&step, 20), ["see it:", "tailsight report run"]);
    }

    #[test]
    fn a_fix_in_prose_and_the_reason_of_a_command_are_wrapped() {
        assert_eq!(lines(&step("try", Fix::step("give it more cores")), 12), ["try: give it", "more cores"]);
        let long = fix("run me", "because it is needed", "do not run me again");
        assert_eq!(
            lines(&step("", long), 14),
            ["run me", "# because it", "# is needed", "# undo: do not run me again"]
        );
    }

    /// What stands in prose as it would between the parts of a fix is prose.
    #[test]
    fn prose_is_wrapped() {
        assert_eq!(lines(&NextStep::words("give it more cores"), 10), ["give it", "more cores"]);
        let says = "a  # b; undo: c: tailsight d";
        assert_eq!(lines(&NextStep::words(says), 80), ["a # b; undo: c: tailsight d"]);
    }
}
