//! Man pages (roff) of the commands. In: the definition of [`super::command`]. Out: a page a command, named as `man` finds it.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::pages::{PAGES, Page};

/// Where the pages are that help and errors name as `docs/NAME.md`.
const DOCUMENTATION: (&str, &str) =
    ("/usr/share/doc/tailsight/docs/", "the pages named docs/NAME.md; of a tarball, share/doc/tailsight/docs/");

/// Every page: its file name (`tailsight-record.1`) and its text.
///
/// # Errors
/// Never in practice: a page is written to memory.
pub fn man_pages() -> std::io::Result<Vec<(String, String)>> {
    PAGES.iter().map(|page| Ok((file_name(page.name), man_page(page.name)?))).collect()
}

/// The page of a command; `tailsight` is the program's own.
///
/// # Errors
/// `NotFound` for a name that is no command's.
pub fn man_page(name: &str) -> std::io::Result<String> {
    let page = PAGES.iter().find(|page| page.name == name).ok_or(std::io::ErrorKind::NotFound)?;
    let mut program = super::command().disable_help_subcommand(true);
    program.build();
    let version = program.get_version().unwrap_or_default().to_owned();
    let command = if name == "tailsight" { Some(&program) } else { program.find_subcommand(name) };
    let mut text = Vec::new();
    render(command.ok_or(std::io::ErrorKind::NotFound)?, page, &version, &mut text)?;
    String::from_utf8(text).map_err(std::io::Error::other)
}

/// `tailsight.1`, `tailsight-record.1`.
fn file_name(command: &str) -> String {
    if command == "tailsight" { "tailsight.1".to_owned() } else { format!("tailsight-{command}.1") }
}

fn render(command: &Command, page: &Page, version: &str, out: &mut Vec<u8>) -> std::io::Result<()> {
    // No date: the same sources are to give the same bytes.
    let man = Man::new(command.clone()).source(format!("tailsight {version}")).manual("Tailsight");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    let mut notes = Roff::new();
    for note in page.notes {
        notes.control("PP", []).text([roman(*note)]);
    }
    notes.to_writer(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let mut rest = Roff::new();
    examples(&mut rest, page);
    let exits: Vec<(String, &str)> = page.exits.iter().map(|(code, means)| (code.to_string(), *means)).collect();
    definitions(&mut rest, "EXIT STATUS", exits.iter().map(|(code, means)| (code.as_str(), *means)));
    definitions(&mut rest, "FILES", page.files.iter().copied().chain([DOCUMENTATION]));
    definitions(&mut rest, "ENVIRONMENT", page.environment.iter().copied());
    see_also(&mut rest, page);
    rest.to_writer(out)
}

fn examples(roff: &mut Roff, page: &Page) {
    if page.examples.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    for (what, line) in page.examples {
        if !what.is_empty() {
            roff.control("PP", []).text([roman(format!("{}:", capital(what)))]);
        }
        roff.control("PP", []).control("nf", []).control("RS", ["4"]);
        for part in line.lines() {
            roff.text([roman(part)]);
        }
        roff.control("RE", []).control("fi", []);
    }
}

/// A section of terms and what each means; none where there is nothing.
fn definitions<'a>(roff: &mut Roff, title: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (at, (term, means)) in rows.enumerate() {
        if at == 0 {
            roff.control("SH", [title]);
        }
        roff.control("TP", []).text([bold(term)]).text([roman(means)]);
    }
}

fn see_also(roff: &mut Roff, page: &Page) {
    let others = PAGES.iter().filter(|other| other.name != page.name);
    let names: Vec<String> =
        others.map(|other| file_name(other.name).trim_end_matches(".1").to_owned() + "(1)").collect();
    roff.control("SH", ["SEE ALSO"]).text([roman(names.join(", "))]);
}

/// With a capital letter, as a sentence begins.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
