//! The book holds together: every page is in its table of contents, and what a page links to is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages of a folder and the folders in it.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The targets of `[text](target)` and of `![alt](target)`, without what stands in code.
fn links(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // Every second piece between backticks is code.
            plain.extend(line.split('`').step_by(2).flat_map(|piece| [piece, "`"]));
            plain.push('\n');
        }
    }
    let ends = plain.match_indices("](").filter_map(|(at, _)| {
        let rest = &plain[at + 2..];
        rest.find(')').map(|end| rest[..end].to_owned())
    });
    ends.collect()
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

#[test]
fn links_and_anchors_are_found_as_a_reader_sees_them() {
    let text = "# A page: one, two\n[a](b.md#c) `[not](this)` ![i](p.png)\n```\n[nor](that)\n```\n[x `y` z](w.md)\n";
    assert_eq!(links(text), ["b.md#c", "p.png", "w.md"]);
    assert_eq!(
        anchors("# A page: one, two\n## How a run is judged\n").into_iter().collect::<Vec<_>>(),
        ["a-page-one-two", "how-a-run-is-judged"]
    );
}

#[test]
fn what_a_page_links_to_is_there() {
    let top = repository();
    let mut all: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].iter().map(|name| top.join(name)).collect();
    pages(&top.join("docs"), &mut all);
    pages(&top.join("evidence"), &mut all);
    let mut broken = Vec::new();
    for page in &all {
        let text = std::fs::read_to_string(page).unwrap();
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, part) = link.split_once('#').map_or((link.as_str(), None), |(path, part)| (path, Some(part)));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let there = match part {
                _ if !target.exists() => false,
                Some(part) if target.extension().is_some_and(|extension| extension == "md") => {
                    anchors(&std::fs::read_to_string(&target).unwrap()).contains(part)
                }
                _ => true,
            };
            if !there {
                broken.push(format!("{}: {link}", page.strip_prefix(&top).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_book_links_every_page_and_every_folder_its_own() {
    let docs = repository().join("docs");
    let mut missing = Vec::new();
    let mut check = |contents: &Path, pages: Vec<PathBuf>| {
        let folder = contents.parent().unwrap();
        let text = std::fs::read_to_string(contents).unwrap();
        let linked: BTreeSet<PathBuf> =
            links(&text).iter().filter_map(|link| folder.join(link.split('#').next()?).canonicalize().ok()).collect();
        let book = folder.join("SUMMARY.md");
        let lacking = pages.into_iter().filter(|page| page != contents && *page != book && !linked.contains(page));
        missing.extend(lacking.map(|page| format!("{}: {}", contents.display(), page.display())));
    };
    let here = |folder: &Path| -> Vec<PathBuf> {
        let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
    };
    check(&docs.join("README.md"), here(&docs));
    for entry in std::fs::read_dir(&docs).unwrap().map(Result::unwrap) {
        let contents = entry.path().join("README.md");
        if contents.is_file() {
            check(&contents, here(&entry.path()));
            check(&docs.join("README.md"), vec![contents]);
        }
    }
    let evidence = repository().join("evidence");
    check(&evidence.join("README.md"), here(&evidence));
    assert!(missing.is_empty(), "{missing:#?}");
}

/// `make book` builds what SUMMARY.md lists, and nothing else. Of the folders that grow it adds the pages by itself.
#[test]
fn the_book_has_every_page() {
    let docs = repository().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let in_order: BTreeSet<PathBuf> = listed.iter().map(|link| docs.join(link).canonicalize().unwrap()).collect();
    assert_eq!(in_order.len(), listed.len(), "a page is listed twice");
    let mut all = Vec::new();
    pages(&docs, &mut all);
    let grows = |page: &PathBuf| {
        ["results", "journal"].iter().any(|folder| page.parent().is_some_and(|parent| parent.ends_with(folder)))
            && !page.ends_with("README.md")
    };
    let missing: Vec<PathBuf> = all
        .into_iter()
        .filter(|page| !page.ends_with("SUMMARY.md") && !grows(page) && !in_order.contains(page))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:#?}");
}

/// `N of M` in a text.
fn parts_of_wholes(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || ",;|*()".contains(c)).filter(|w| !w.is_empty()).collect();
    let number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    let found = words.windows(3).filter(|w| number(w[0]) && w[1] == "of" && number(w[2]));
    found.map(|w| w.join(" ")).collect()
}

/// The README kept the figures of an older pass.
#[test]
fn the_figures_of_the_readme_are_those_of_the_page_about_accuracy() {
    let read = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap();
    let readme = read("README.md");
    let status = readme.split("\n## ").find(|part| part.starts_with("Status")).unwrap();
    let (said, known) = (parts_of_wholes(status), parts_of_wholes(&read("docs/results/accuracy.md")));
    assert!(said.len() >= 7, "{said:?}");
    assert_eq!(said.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// The cells of the table rows between two headings of a page.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let part = page.split("\n## ").find(|part| part.starts_with(heading)).expect("the page has this heading");
    let lines = part.lines().filter(|line| line.starts_with("| "));
    // The first row has the names of the columns.
    lines.skip(1).map(|line| line.split('|').skip(1).map(str::trim).collect()).collect()
}

/// The two numbers of the first `N of M` in a cell.
fn part_of_whole(cell: &str) -> Option<(u32, u32)> {
    let figure = parts_of_wholes(cell).into_iter().next()?;
    let (part, whole) = figure.split_once(" of ")?;
    Some((part.parse().ok()?, whole.parse().ok()?))
}

fn sum_of(rows: &[Vec<&str>], column: usize, wanted: impl Fn(&str) -> bool) -> (u32, u32) {
    let figures = rows.iter().filter(|row| wanted(row[0])).filter_map(|row| part_of_whole(row[column]));
    figures.fold((0, 0), |sum, figure| (sum.0 + figure.0, sum.1 + figure.1))
}

#[test]
fn each_figure_of_the_page_of_evidence_is_in_the_dated_page_and_the_sums_are_of_the_rows() {
    let results = repository().join("docs/results");
    let page = std::fs::read_to_string(results.join("evidence.md")).unwrap();
    let (sets, trials) = (rows(&page, "Held-out sets"), rows(&page, "Trials by strangers"));
    assert!(sets.len() >= 12 && trials.len() >= 7, "{} sets, {} trials", sets.len(), trials.len());
    for row in sets.iter().filter(|row| !row[0].starts_with('*')) {
        let link = links(row[6]).pop().expect("a set has a page");
        let dated = std::fs::read_to_string(results.join(link.split('#').next().unwrap())).unwrap();
        let (said, there) = (parts_of_wholes(&format!("{} {}", row[2], row[3])), parts_of_wholes(&dated));
        let missing: Vec<&String> = said.difference(&there).collect();
        assert!(!said.is_empty() && missing.is_empty(), "{}: {said:?}, of which {missing:?} are not in {link}", row[0]);
    }
    let early = |set: &str| ["first", "second", "third", "fourth", "fifth"].iter().any(|name| set.starts_with(name));
    let late = |set: &str| !early(set) && !set.starts_with('*');
    let sum = |rows: &[Vec<&str>], name: &str, column: usize| {
        part_of_whole(rows.iter().find(|row| row[0].contains(name)).unwrap()[column])
    };
    assert_eq!(sum(&sets, "*first to fifth", 2), Some(sum_of(&sets, 2, early)));
    assert_eq!(sum(&sets, "*sixth to tenth", 2), Some(sum_of(&sets, 2, late)));
    assert_eq!(sum(&sets, "*sixth to tenth", 3), Some(sum_of(&sets, 3, late)));
    let counted = |trial: &str| !trial.starts_with('*') && !trial.starts_with("sixth");
    assert_eq!(sum(&trials, "*without the sixth", 2), Some(sum_of(&trials, 2, counted)));
}

/// The functions of a crate that are tests or may be: every `fn` in its files, and that of the crate of tests.
fn functions_of(folder: &Path, functions: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            functions_of(&path, functions);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let names = source.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            functions.extend(names.map(str::to_owned));
        }
    }
}

/// An invariant of a crate is worth what holds it: the test that ARCHITECTURE.md names is there.
#[test]
fn each_crate_has_an_invariant_and_the_tests_that_hold_it_are_there() {
    let top = repository();
    let page = std::fs::read_to_string(top.join("ARCHITECTURE.md")).unwrap();
    let part = page.split("\n## ").find(|part| part.starts_with("Invariants")).expect("the part on invariants");
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(top.join("crates")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let Some(said) = part.split("\n\n").find(|said| said.starts_with(&format!("**`{name}`**"))) else {
            wrong.push(format!("{name}: no paragraph"));
            continue;
        };
        if !said.contains("*Invariant:*") || !said.contains("*API:*") {
            wrong.push(format!("{name}: no invariant, or no API"));
        }
        let mut functions = BTreeSet::new();
        functions_of(&entry.path(), &mut functions);
        functions_of(&top.join("crates/tailsight-testing/tests"), &mut functions);
        let tests = said.split('`').skip(1).step_by(2).filter(|code| code.matches('_').count() >= 2);
        wrong.extend(tests.filter(|test| !functions.contains(*test)).map(|test| format!("{name}: no test {test}")));
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md: {wrong:#?}");
}

#[test]
fn the_glossary_has_at_most_forty_words() {
    let page = std::fs::read_to_string(repository().join("docs/glossary.md")).unwrap();
    let words = page.lines().filter(|line| line.starts_with("| ")).count() - 1;
    assert!((20..=40).contains(&words), "{words}");
}

/// README.md told to clone from an address that nobody has registered.
#[test]
fn no_page_sends_readers_to_an_address_of_this_project_s_that_does_not_exist() {
    let top = repository();
    let mut all: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Cargo.toml"].iter().map(|name| top.join(name)).collect();
    pages(&top.join("docs"), &mut all);
    for page in all {
        let text = std::fs::read_to_string(&page).unwrap();
        let found =
            text.match_indices("://").map(|(at, _)| text[at + 3..].split([' ', ')', '`', '"', '\'', '>']).next());
        let own: Vec<&str> = found.flatten().filter(|rest| rest.contains("tailsight")).collect();
        assert!(own.is_empty(), "{}: {own:?}", page.display());
    }
}

/// docs/lifetimes.md used to lack about ten of the names.
#[test]
fn every_frame_that_the_output_names_is_in_the_book() {
    let model = std::fs::read_to_string(repository().join("crates/tailsight-lifetime/src/model/frame.rs")).unwrap();
    let begin = model.find("\nframes! {").expect("the table of frames");
    let body = &model[begin..begin + model[begin..].find("\n}\n").unwrap()];
    let stems: BTreeSet<&str> = body
        .split('"')
        .skip(1)
        .step_by(2)
        .map(|text| text.split(':').next().unwrap_or_default())
        .filter(|stem| stem.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    assert!(stems.len() > 20 && stems.contains("softirq") && stems.contains("tx-queued"), "{stems:?}");
    let page = std::fs::read_to_string(repository().join("docs/lifetimes.md")).unwrap();
    let missing: Vec<&&str> = stems
        .iter()
        .filter(|stem| !page.contains(&format!("`{stem}:")) && !page.contains(&format!("`{stem}`")))
        .collect();
    assert!(missing.is_empty(), "not in docs/lifetimes.md: {missing:?}");
}

/// Words of this project's own that readers stumbled over, each with the field's term. A page that needs one of its own defines it in the
/// glossary. The dated pages of evidence/ and the journal stay as they were written.
const GIVEN_UP: &[(&str, &str)] = &[
    ("anew", "again"),
    ("chores", "maintenance"),
    ("crowded", "shares cores"),
    ("doubt", "uncertainty"),
    ("lifeline", "timeline"),
    ("nap", "sleep"),
    ("serving window", "busy period"),
    ("spoiled", "disturbed"),
    ("stretch", "interval"),
    ("stretches", "intervals"),
];

#[test]
fn no_page_uses_a_word_that_was_given_up() {
    let top = repository();
    let mut all: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].iter().map(|name| top.join(name)).collect();
    pages(&top.join("docs"), &mut all);
    let journal = top.join("docs/journal");
    let mut found = Vec::new();
    for page in all.iter().filter(|page| !page.starts_with(&journal)) {
        let text = std::fs::read_to_string(page).unwrap();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<String> = line
                .split(|c: char| !c.is_alphanumeric())
                .filter(|word| !word.is_empty())
                .map(str::to_lowercase)
                .collect();
            let line = format!(" {} ", words.join(" "));
            let used = GIVEN_UP.iter().filter(|(word, _)| line.contains(&format!(" {word} ")));
            found.extend(used.map(|(word, term)| {
                format!("{}:{}: {word}: {term}", page.strip_prefix(&top).unwrap().display(), number + 1)
            }));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
