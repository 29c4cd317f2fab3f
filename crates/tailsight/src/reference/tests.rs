use std::path::Path;

use clap::{Arg, Command};

use super::pages::PAGES;
use super::{HELP_WIDTH, Page, command, man_pages, markdown::markdown};

/// Every command that `--help` shows, with its page.
fn commands() -> Vec<(Command, &'static Page)> {
    let mut program = command().disable_help_subcommand(true);
    program.build();
    let shown = program.get_subcommands().filter(|c| !c.is_hide_set());
    let mut documented: Vec<(Command, &Page)> = shown
        .map(|c| {
            let page = PAGES.iter().find(|page| page.name == c.get_name());
            (c.clone(), page.unwrap_or_else(|| panic!("{} has no page in src/reference/pages.rs", c.get_name())))
        })
        .collect();
    documented.push((program.clone(), &PAGES[0]));
    documented
}

/// What `--help` prints in a terminal of 80 columns.
fn help(page: &Page) -> String {
    let words =
        if page.name == "tailsight" { vec![page.name, "--help"] } else { vec!["tailsight", page.name, "--help"] };
    command().term_width(HELP_WIDTH).try_get_matches_from(words).unwrap_err().to_string()
}

#[test]
fn every_command_has_a_page_and_every_page_a_command() {
    let commands = commands();
    assert_eq!(commands.len(), PAGES.len());
    assert_eq!(PAGES[0].name, "tailsight");
    for (command, page) in commands {
        assert!(!page.examples.is_empty() && !page.exits.is_empty() && !page.usage.is_empty(), "{}", page.name);
        assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{}", page.name);
    }
}

/// `tailsight record --help` was 100 columns wide.
#[test]
fn help_is_no_wider_than_80_columns_and_no_example_is_broken() {
    for (_, page) in commands() {
        let text = help(page);
        for line in text.lines() {
            assert!(line.chars().count() <= HELP_WIDTH, "{}: {line}", page.name);
        }
        for line in page.examples.iter().flat_map(|(_, line)| line.lines()) {
            assert!(text.lines().any(|shown| shown.strip_prefix("  ") == Some(line)), "{}: {line}\n{text}", page.name);
        }
        for form in page.usage {
            assert!(text.contains(form), "{}: {form} in\n{text}", page.name);
        }
    }
}

/// The options that most uses need stand in the first section, which fits a screen; the first of them first.
#[test]
fn common_options_come_first() {
    let first = |name: &str| -> Vec<String> {
        let text = help(PAGES.iter().find(|page| page.name == name).unwrap());
        let (_, options) = text.split_once("\nOptions:\n").unwrap();
        let section = options.split("\n\n").next().unwrap();
        let names = section.lines().filter(|line| line.trim_start().starts_with('-'));
        names.map(|line| line[line.find("--").unwrap()..].split_whitespace().next().unwrap().to_owned()).collect()
    };
    for (name, common) in [
        ("record", &["--pid", "--comm", "--cgroup", "--port", "--container", "--duration", "--out", "--protocol"][..]),
        ("diagnose", &["--focus", "--reference", "--leg", "--against", "--more", "--json"]),
        ("load", &["--rate", "--max-time", "--out", "--html", "--against"]),
        ("sweep", &["--rates", "--from", "--to", "--slo"]),
        ("ideal", &["--model", "--calibrate", "--calibration"]),
        ("fix", &["--yes", "--shell", "--undo"]),
    ] {
        let options = first(name);
        assert!(
            options.starts_with(&common.iter().map(ToString::to_string).collect::<Vec<_>>()),
            "{name}: {options:?}"
        );
        assert!(options.len() <= 17, "{name} has {} options in its first section: {options:?}", options.len());
    }
}

#[test]
fn every_option_says_what_it_takes() {
    for (command, page) in commands() {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let name = format!("{} {}", page.name, arg.get_id());
            assert!(arg.get_help().is_some_and(|help| !help.to_string().is_empty()), "{name} has no help");
            let takes = arg.get_num_args().is_some_and(|range| range.takes_values());
            assert!(!takes || arg.get_value_names().is_some_and(|names| !names.is_empty()), "{name} has no value name");
        }
        let text = help(page);
        for arg in command.get_arguments().filter(|arg| shows_a_default(arg)) {
            let value = arg.get_default_values()[0].to_string_lossy().into_owned();
            assert!(text.contains(&value), "{}: default {value} of {}", page.name, arg.get_id());
        }
    }
}

fn shows_a_default(arg: &Arg) -> bool {
    let takes = arg.get_num_args().is_some_and(|range| range.takes_values());
    takes && !arg.is_hide_set() && !arg.is_hide_default_value_set() && !arg.get_default_values().is_empty()
}

/// What an example says is what the parser takes.
#[test]
fn every_example_is_a_command_line_that_parses() {
    let mut parsed = 0;
    for page in PAGES {
        for (_, text) in page.examples {
            for line in text.replace("\\\n", " ").lines() {
                let Some(at) = line.find("tailsight ") else { continue };
                let line = &line[at..];
                if line.starts_with("tailsight /") || text.starts_with("duckdb") {
                    continue;
                }
                let words = words(line).into_iter().map(|word| word.replace("7411#AB...", &print('a')));
                let words: Vec<String> = words.map(|word| word.replace("7411#CD...", &print('c'))).collect();
                if let Err(error) = command().try_get_matches_from(&words) {
                    panic!("{line}: {error}");
                }
                parsed += 1;
            }
        }
    }
    assert!(parsed > 40, "{parsed}");
}

/// The commands of the pages that tell how to do something.
#[test]
fn every_command_of_the_tutorial_and_the_how_to_pages_parses() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![top.join("README.md"), top.join("docs/tutorial.md"), top.join("docs/fixes.md")];
    let how_to = std::fs::read_dir(top.join("docs/how-to")).unwrap();
    pages.extend(how_to.map(|entry| entry.unwrap().path()));
    let mut parsed = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        for line in text.lines() {
            let line = line.trim_start_matches(['#', '$', ' ']);
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            // A sentence is none, nor is a line with a column of explanations.
            if !line.starts_with("tailsight ") {
                continue;
            }
            let line = line.split("  ").next().unwrap().split(" #").next().unwrap();
            let line = line.replace("RUN ID", "RUN 1").replace("RUN N", "RUN 1").replace('"', "");
            if let Err(error) = command().try_get_matches_from(words(&line)) {
                panic!("{}: {line}: {error}", page.display());
            }
            parsed += 1;
        }
    }
    assert!(parsed > 45, "{parsed}");
}

/// A port and a whole fingerprint.
fn print(digit: char) -> String {
    format!("7411#{}", digit.to_string().repeat(64))
}

/// The words of a line as a shell splits it, up to a pipe or a redirection; what a shell would put in is a 1.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut line = line.to_owned();
    while let Some(at) = line.find("$(") {
        let end = line[at..].find(')').map_or(line.len(), |length| at + length + 1);
        line.replace_range(at..end, "1");
    }
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            '|' | '>' if !quoted => return words,
            letter => word.push(letter),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[test]
fn a_man_page_has_every_option_and_the_sections_that_man_readers_expect() {
    let pages = man_pages().unwrap();
    assert_eq!(pages.len(), PAGES.len());
    for (command, page) in commands() {
        let file =
            if page.name == "tailsight" { "tailsight.1".to_owned() } else { format!("tailsight-{}.1", page.name) };
        let text = &pages.iter().find(|(name, _)| *name == file).unwrap_or_else(|| panic!("{file}")).1;
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "FILES", "SEE ALSO"] {
            let heading = format!(".SH \"{section}\"");
            assert!(text.contains(&heading) || text.contains(&format!(".SH {section}")), "{file}: {section}\n{text}");
        }
        for long in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long) {
            assert!(text.contains(&format!("\\-\\-{}", long.replace('-', "\\-"))), "{file}: --{long}");
        }
    }
}

/// What help names is installed with the package: `scripts/package.sh` takes all of docs/.
#[test]
fn a_page_that_help_names_exists_and_man_pages_name_its_folder() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for (_, page) in commands() {
        let help = help(page);
        for part in help.split("docs/").skip(1) {
            let Some((name, _)) = part.split_once(".md").filter(|(name, _)| !name.contains(char::is_whitespace)) else {
                continue;
            };
            assert!(name == "NAME" || top.join(format!("docs/{name}.md")).is_file(), "{}: docs/{name}.md", page.name);
            named += 1;
        }
        assert!(super::man_page(page.name).unwrap().contains("/usr/share/doc/tailsight/docs/"), "{}", page.name);
    }
    assert!(named > 5, "{named}");
}

/// The page is made from the definition, so it must be as the definition is now.
#[test]
fn commands_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("TAILSIGHT_WRITE_COMMANDS").is_some() {
        std::fs::write(&path, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == markdown(),
        "docs/commands.md is stale: TAILSIGHT_WRITE_COMMANDS=1 cargo test -p tailsight commands_page"
    );
}

#[test]
fn the_page_has_every_command_and_option() {
    let page = markdown();
    for (command, reference) in commands() {
        assert!(page.contains(&format!(
            "\n## tailsight{}\n",
            if reference.name == "tailsight" { String::new() } else { format!(" {}", reference.name) }
        )));
        for long in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long) {
            assert!(
                matches!(long, "help" | "version") || page.contains(&format!("--{long}")),
                "{} --{long}",
                reference.name
            );
        }
    }
}
