//! `docs/commands.md`. In: the definition of [`super::command`]. Out: the page as Markdown.

use clap::{Arg, Command};

use super::pages::PAGES;

/// The reference page of all commands.
pub fn markdown() -> String {
    let mut program = super::command().disable_help_subcommand(true);
    program.build();
    let mut out = "# Commands\n\n\
        Made from the definition that also gives the parser, `--help`, the man pages and the completions.\n\
        `TAILSIGHT_WRITE_COMMANDS=1 cargo test -p tailsight commands_page` writes it; the same test fails when it is stale.\n"
        .to_owned();
    out += "\n| Command | |\n|---|---|\n";
    for page in PAGES.iter().filter(|page| page.name != "tailsight") {
        let about = program.find_subcommand(page.name).and_then(Command::get_about).map(ToString::to_string);
        out += &format!("| [{0}](#tailsight-{0}) | {1} |\n", page.name, about.unwrap_or_default());
    }
    for page in PAGES {
        let own = page.name == "tailsight";
        let Some(command) = (if own { Some(&program) } else { program.find_subcommand(page.name) }) else { continue };
        out += &if own { "\n## tailsight\n".to_owned() } else { format!("\n## tailsight {}\n", page.name) };
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        out += &format!("\n{}.\n", about.trim_end_matches('.'));
        let called = if own { "tailsight".to_owned() } else { format!("tailsight {}", page.name) };
        let forms: Vec<String> = page.usage.iter().map(|form| format!("{called} {form}")).collect();
        out += &format!("\n```text\n{}\n```\n", forms.join("\n"));
        for note in page.notes {
            out += &format!("\n{}\n", escaped(note));
        }
        options(&mut out, command);
        examples(&mut out, page.examples);
        let exits: Vec<String> = page.exits.iter().map(|(code, means)| format!("{code} {means}")).collect();
        out += &format!("\nExit codes: {}.\n", exits.join("; "));
        table(&mut out, "File", page.files);
        table(&mut out, "Variable of the environment", page.environment);
    }
    out
}

/// A table for the options without a heading, and one for each heading.
fn options(out: &mut String, command: &Command) {
    let shown: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set() && !is_help(arg)).collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for arg in &shown {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let rows: Vec<&&Arg> = shown.iter().filter(|arg| arg.get_help_heading() == heading).collect();
        if rows.is_empty() {
            continue;
        }
        let mut rows: Vec<&Arg> = rows.into_iter().copied().collect();
        rows.sort_by_key(|arg| !arg.is_positional());
        *out += &format!("\n| {} | |\n|---|---|\n", heading.unwrap_or("Option"));
        for arg in rows {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            *out += &format!("| {} | {}{} |\n", spelled(arg), escaped(&help), values(arg));
        }
    }
}

/// `--help` and `--version`, which every command has.
fn is_help(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

/// As it is written on a command line: `-d`, `--duration <TIME>`.
fn spelled(arg: &Arg) -> String {
    let takes = arg.get_num_args().is_some_and(|range| range.takes_values());
    let value = match arg.get_value_names() {
        Some(names) if takes => format!("<{}>", names.join("> <")),
        _ => String::new(),
    };
    if arg.is_positional() {
        return format!("`{}`", value.replace('|', "\\|"));
    }
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    format!("`{}`", format!("{} {value}", names.join(", ")).trim_end().replace('|', "\\|"))
}

/// The values that are possible, and the default.
fn values(arg: &Arg) -> String {
    let mut out = String::new();
    let takes = arg.get_num_args().is_some_and(|range| range.takes_values());
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes && !possible.is_empty() {
        out += &format!(". One of {}", possible.join(", "));
    }
    if takes && !arg.is_hide_default_value_set() && !arg.get_default_values().is_empty() {
        let values: Vec<String> = arg.get_default_values().iter().map(|v| v.to_string_lossy().into_owned()).collect();
        out += &format!(" [default: {}]", values.join(","));
    }
    out
}

fn examples(out: &mut String, examples: &[super::pages::Example]) {
    if examples.is_empty() {
        return;
    }
    *out += "\n```sh\n";
    for (what, line) in examples {
        if !what.is_empty() {
            *out += &format!("# {what}\n");
        }
        *out += &format!("{line}\n");
    }
    *out += "```\n";
}

fn table(out: &mut String, title: &str, rows: &[(&str, &str)]) {
    if rows.is_empty() {
        return;
    }
    *out += &format!("\n| {title} | |\n|---|---|\n");
    for (name, means) in rows {
        *out += &format!("| `{name}` | {} |\n", escaped(means));
    }
}

/// What Markdown would read as a column, a link or a tag.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (at, piece) in text.split('`').enumerate() {
        if at > 0 {
            out.push('`');
        }
        // Every second piece is code, where only a bar matters.
        let piece = piece.replace('|', "\\|");
        out += &if at % 2 == 0 { piece.replace('<', "\\<").replace('*', "\\*") } else { piece };
    }
    out
}
