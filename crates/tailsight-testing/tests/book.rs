//! The book of docs/: built by mdBook, with every link of its pages checked.
//!
//! In: docs/, and the pages of the repository that it links. Out: book/html/index.html in cargo's target directory. The test fails if
//! mdBook cannot build it, or if a link leads to a page or a heading that is not in it. `make book` runs the same test.

#![allow(clippy::print_stderr, reason = "`make book` shows where the book is")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Pages from outside of docs/ that are in the book too, under `project/`, with their titles there.
const PROJECT: [(&str, &str); 3] =
    [("ARCHITECTURE.md", "Architecture"), ("CONTRIBUTING.md", "Contributing"), ("CHANGELOG.md", "Changes")];

/// Folders of docs/ that get pages all the time: SUMMARY.md lists their README.md, and the other pages are added below it.
const GROWING: [&str; 2] = ["results", "journal"];

#[test]
fn the_book_is_built_and_its_links_lead_somewhere() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The target directory has a folder for tests; the book is beside it.
    let book = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("book");
    let pages = build(&repository, &book).unwrap_or_else(|error| panic!("{error}"));
    assert!(pages > 50, "the book has only {pages} pages");
    eprintln!("book: {pages} pages, every link leads somewhere: {}", book.join("html/index.html").display());
}

/// Builds the book of a repository in the folder `book`, which is made new. Returns the number of its pages, or what is wrong.
fn build(repository: &Path, book: &Path) -> Result<usize, String> {
    if book.exists() {
        fs::remove_dir_all(book).unwrap();
    }
    put_together(repository, book);
    let build = || mdbook_driver::MDBook::load(book)?.build();
    build().map_err(|error| format!("mdBook cannot build the book: {error:?}"))?;
    let html = book.join("html");
    let pages: Vec<PathBuf> = files(&html)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "html"))
        // These mdBook makes by itself: all pages on one, the table of contents for browsers without scripts, and an error page.
        .filter(|path| !["print.html", "toc.html", "404.html"].iter().any(|name| path.ends_with(name)))
        .collect();
    let broken: Vec<String> = pages.iter().flat_map(|page| broken_links(&html, page)).collect();
    if broken.is_empty() {
        Ok(pages.len())
    } else {
        Err(format!("links of the book lead nowhere:\n{}", broken.join("\n")))
    }
}

/// Copies the pages to where mdBook expects them, with links that are right there.
fn put_together(repository: &Path, book: &Path) {
    let docs = repository.join("docs");
    let sources = files(&docs).into_iter().chain(PROJECT.map(|(page, _)| repository.join(page)));
    for file in sources {
        let page = file.strip_prefix(repository).unwrap();
        if page == Path::new("docs/book.toml") {
            write(&book.join("book.toml"), &fs::read(&file).unwrap());
            continue;
        }
        let to = book.join("src").join(place(page).expect("the file is of the book"));
        if page.extension().is_some_and(|extension| extension == "md") {
            let mut text = with_links(&fs::read_to_string(&file).unwrap(), |target| link(page, target));
            if page == Path::new("docs/SUMMARY.md") {
                text = complete(&text, &docs);
            }
            write(&to, text.as_bytes());
        } else {
            write(&to, &fs::read(&file).unwrap());
        }
    }
}

/// The table of contents with the pages of the folders that grow, and those of the project.
fn complete(summary: &str, docs: &Path) -> String {
    let mut text = String::new();
    for line in summary.lines() {
        text += &format!("{line}\n");
        for folder in GROWING.iter().filter(|folder| line.contains(&format!("]({folder}/index.md)"))) {
            for page in files(&docs.join(folder)).iter().filter(|page| !page.ends_with("README.md")) {
                let content = fs::read_to_string(page).unwrap();
                let title = content.lines().find_map(|line| line.strip_prefix("# ")).expect("a page has a title");
                text += &format!("  - [{title}]({})\n", page.strip_prefix(docs).unwrap().display());
            }
        }
    }
    text += "\n# Project\n\n";
    text.extend(PROJECT.map(|(page, title)| format!("- [{title}](project/{page})\n")));
    text
}

/// Where the book has a file of the repository, from the book's `src`; `None`: it does not have it.
fn place(file: &Path) -> Option<PathBuf> {
    let there = match file.strip_prefix("docs") {
        Ok(inside) => inside.to_owned(),
        Err(_) => Path::new("project").join(PROJECT.iter().find(|(page, _)| file == Path::new(page))?.0),
    };
    // mdBook makes index.html of a README, and leaves the links to it as they were.
    Some(if there.ends_with("README.md") { there.with_file_name("index.md") } else { there })
}

/// The target of a link on `page` as it is in the book; `None`: the book does not have the target.
fn link(page: &Path, target: &str) -> Option<String> {
    let (path, heading) = target.split_at(target.find('#').unwrap_or(target.len()));
    if path.is_empty() || path.contains(':') {
        return Some(target.to_owned());
    }
    let to = place(&without_dots(&page.parent()?.join(path)))?;
    let from = place(page)?;
    let (from, to): (Vec<_>, Vec<_>) = (from.parent()?.components().collect(), to.components().collect());
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let way: PathBuf =
        from[shared..].iter().map(|_| Component::ParentDir).chain(to[shared..].iter().copied()).collect();
    Some(format!("{}{heading}", way.display()))
}

/// A relative path without `.` and `..`, as far as it stays inside.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if plain.pop() => {}
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Markdown with the target of each link turned by `turn`, outside of code; where that gives `None`, the text of the link alone.
fn with_links(text: &str, turn: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    // Where the texts of links begin in `out`, the innermost last; whether we are in a block of code, and in code within a line.
    let (mut opened, mut block, mut code) = (Vec::new(), false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if (out.is_empty() || out.ends_with('\n')) && rest.trim_start_matches(' ').starts_with("```") {
            block = !block;
            let line = rest.find('\n').map_or(rest.len(), |end| end + 1);
            out += &rest[..line];
            rest = &rest[line..];
            continue;
        }
        let target = rest.strip_prefix("](").filter(|_| !block && !code);
        if let Some((target, after)) = target.and_then(|rest| rest.split_once(')')) {
            let begin: Option<usize> = opened.pop();
            match (turn(target), begin) {
                (None, Some(begin)) => drop(out.remove(begin)),
                (turned, _) => out += &format!("]({})", turned.as_deref().unwrap_or(target)),
            }
            rest = after;
            continue;
        }
        match next {
            '`' if !block => code = !code,
            '[' if !block && !code => opened.push(out.len()),
            ']' if !block && !code => drop(opened.pop()),
            // A paragraph ends what it left open.
            '\n' if out.ends_with('\n') => (opened, code) = (Vec::new(), false),
            _ => {}
        }
        out.push(next);
        rest = &rest[next.len_utf8()..];
    }
    out
}

/// The links of a page that lead to no file, or to no heading of theirs.
fn broken_links(html: &Path, page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let links: BTreeSet<&str> = attributes(&text, "href").chain(attributes(&text, "src")).collect();
    let name = page.strip_prefix(html).unwrap().display();
    let mut broken = Vec::new();
    for link in links {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let path = path.split('?').next().unwrap_or_default();
        // Scripts and styles are mdBook's own business.
        if path.contains(':') || path.starts_with('/') || path.ends_with(".js") || path.ends_with(".css") {
            continue;
        }
        let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
        if !target.exists() {
            broken.push(format!("{name}: {link}"));
        } else if !heading.is_empty()
            && !attributes(&fs::read_to_string(&target).unwrap(), "id").any(|id| id == heading)
        {
            broken.push(format!("{name}: {link}: this page has no such heading"));
        }
    }
    broken
}

/// The values of an attribute, wherever it is in a page of HTML.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {name}=\"");
    html.match_indices(&begin)
        .map(|(at, begin)| html[at + begin.len()..].split('"').next().unwrap_or_default())
        .collect::<Vec<_>>()
        .into_iter()
}

/// All files of a folder and the folders in it, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Builds the book of a repository with these pages beside those that every one has.
fn built(name: &str, pages: &[(&str, &str)]) -> Result<usize, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("book-{name}-{}", std::process::id()));
    let every = [
        ("docs/book.toml", "[build]\nbuild-dir = \"html\"\ncreate-missing = false\n"),
        ("docs/SUMMARY.md", "# Summary\n\n[The book](README.md)\n\n- [Results](results/README.md)\n"),
        ("docs/README.md", "# The book\n\nFigures are in [results](results/README.md).\n"),
        ("docs/results/README.md", "# Results\n"),
        ("docs/results/speed.md", "# How fast it is\n\n## On two cores\n\nIt is fast.\n"),
        ("ARCHITECTURE.md", "# Architecture\n"),
        ("CONTRIBUTING.md", "# Contributing\n"),
        ("CHANGELOG.md", "# Changes\n"),
    ];
    for (path, text) in every.iter().chain(pages) {
        write(&folder.join("repository").join(path), text.as_bytes());
    }
    let result = build(&folder.join("repository"), &folder.join("book"));
    fs::remove_dir_all(&folder).unwrap();
    result
}

#[test]
fn links_to_pages_and_headings_of_the_book_are_good() {
    let book = "# The book\n\n[a](results/speed.md#on-two-cores), [b](../CHANGELOG.md), [c](#the-book), [d](https://example.org/)\n";
    let changes =
        "# Changes\n\n[a](docs/README.md#the-book), [b](ARCHITECTURE.md), [the script](scripts/x.sh), [you](LICENSE)\n";
    assert_eq!(built("good", &[("docs/README.md", book), ("CHANGELOG.md", changes)]), Ok(6));
}

#[test]
fn a_link_to_no_page_is_found() {
    let error = built("page", &[("docs/README.md", "# The book\n\n[speed](results/spede.md)\n")]).unwrap_err();
    assert!(error.ends_with("\nindex.html: results/spede.html"), "{error}");
}

#[test]
fn a_link_to_no_heading_is_found() {
    let error =
        built("heading", &[("ARCHITECTURE.md", "# A\n\n[s](docs/results/speed.md#on-four-cores)\n")]).unwrap_err();
    assert!(
        error.ends_with(
            "\nproject/ARCHITECTURE.html: ../results/speed.html#on-four-cores: this page has no such heading"
        ),
        "{error}"
    );
}

#[test]
fn a_page_that_the_table_of_contents_names_has_to_exist() {
    let error = built("contents", &[("docs/SUMMARY.md", "# Summary\n\n- [Speed](speed.md)\n")]).unwrap_err();
    assert!(error.contains("speed.md"), "{error}");
}

#[test]
fn links_are_turned_outside_of_code_and_dropped_where_they_lead_out_of_the_book() {
    let turn = |target: &str| (target != "out").then(|| target.to_uppercase());
    let text = "[a](b) `[c](d)` [x `y` z](e) ![i](f)\n[on\ntwo lines](out), [[g]](out)\n```\n[h](i)\n```\n[j](k)\n";
    let turned = "[a](B) `[c](d)` [x `y` z](E) ![i](F)\non\ntwo lines, [g]\n```\n[h](i)\n```\n[j](K)\n";
    assert_eq!(with_links(text, turn), turned);
}
