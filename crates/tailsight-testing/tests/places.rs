//! What has a name at several places of the repository is at each of them: kinds of event, probes, categories of causes, export formats
//! and protocols. In: the sources, tables and pages. Out: for each name the places that lack it, so that who adds one gets the list.
//!
//! The names are read from where they are defined, or from docs/commands.md, which is made of the command line's definition. ARCHITECTURE.md
//! says how to add each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The text of a file, or of the files below a folder that end so.
fn text(place: &str, ending: &str) -> String {
    let path = repository().join(place);
    if path.is_file() {
        return std::fs::read_to_string(path).unwrap();
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(&path)
        .unwrap_or_else(|error| panic!("{place}: {error}"))
        .map(|e| e.unwrap().path())
        .collect();
    entries.sort();
    let inside = entries.iter().filter_map(|entry| {
        let name = entry.strip_prefix(repository()).unwrap().to_str().unwrap();
        (entry.is_dir() || name.ends_with(ending)).then(|| text(name, ending))
    });
    inside.collect()
}

/// Whether a text has this between characters that are no part of a name.
fn has(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part) && !text[at + name.len()..].chars().next().is_some_and(part)
    })
}

/// `FunctionBegin` with words of this case between these marks: `TS_FUNCTION_BEGIN` in C.
fn split_words(name: &str, mark: &str) -> String {
    let begins = |at: usize, c: char| at > 0 && c.is_uppercase();
    name.char_indices().map(|(at, c)| if begins(at, c) { format!("{mark}{c}") } else { c.to_string() }).collect()
}

/// Where a name has to be, and whether it is there.
type Place<'a> = (&'a str, Box<dyn Fn(&str) -> bool + 'a>);

fn place<'a>(name: &'a str, is_there: impl Fn(&str) -> bool + 'a) -> Place<'a> {
    (name, Box::new(is_there))
}

/// The names with the places that lack them.
fn lacking(names: &[String], places: &[Place]) -> BTreeMap<String, Vec<String>> {
    let of = |name: &String| {
        let places = places.iter().filter(|(_, is_there)| !is_there(name)).map(|(place, _)| (*place).to_owned());
        (name.clone(), places.collect::<Vec<_>>())
    };
    names.iter().map(of).filter(|(_, places)| !places.is_empty()).collect()
}

/// Adds the places that names lack to those that they lack already.
fn add(missing: &mut BTreeMap<String, Vec<String>>, more: BTreeMap<String, Vec<String>>) {
    for (name, places) in more {
        missing.entry(name).or_default().extend(places);
    }
}

/// The kinds of event with what is said of each: `/// What it is.` and `Name = 1, "hook", …;`.
fn kinds() -> Vec<(String, String)> {
    let source = text("crates/tailsight-event/src/event.rs", ".rs");
    let table =
        source.split("\nkinds! {").nth(1).expect("event.rs has the table of kinds").split("\n}\n").next().unwrap();
    let mut kinds: Vec<(String, String)> = Vec::new();
    let mut said = String::new();
    for line in table.lines().map(str::trim) {
        let head = line.split_once(" = ").filter(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()));
        match head {
            Some((name, _)) => kinds.push((name.to_owned(), std::mem::take(&mut said) + line)),
            None if line.starts_with("///") => said += line,
            // More lines of the entry before.
            None => kinds.last_mut().into_iter().for_each(|(_, said)| *said += line),
        }
    }
    kinds
}

/// The events that a probe's C says that it writes.
fn events_of_probes() -> Vec<(String, String)> {
    let folder = repository().join("crates/tailsight-record/src/probes");
    let mut probes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        let source = std::fs::read_to_string(entry.path().join(format!("{name}.bpf.c")))
            .unwrap_or_else(|error| panic!("the probe {name} has no {name}.bpf.c: {error}"));
        let events = source
            .split_once("* events: ")
            .map_or("", |(_, rest)| rest.split("*/").next().unwrap().split("\n *\n").next().unwrap());
        probes.push((name, events.to_owned()));
    }
    probes
}

#[test]
fn a_kind_of_event_is_written_read_and_described() {
    let kinds = kinds();
    assert!(kinds.len() > 50, "{kinds:?}");
    let old = |said: &str| {
        ["Older runs only", "older runs only", "Only in older runs"].iter().any(|words| said.contains(words))
    };
    let recorded: Vec<&(String, String)> = kinds.iter().filter(|(_, said)| !old(said)).collect();
    let by_recorder = |said: &str| said.contains("\"recorder\"");
    let of_probes: Vec<String> =
        recorded.iter().filter(|(_, said)| !by_recorder(said)).map(|(name, _)| name.clone()).collect();
    let of_recorder: Vec<String> =
        recorded.iter().filter(|(_, said)| by_recorder(said)).map(|(name, _)| name.clone()).collect();
    assert!(of_probes.len() > 40 && !of_recorder.is_empty(), "{of_probes:?} {of_recorder:?}");

    let headers: String = events_of_probes().into_iter().map(|(_, events)| events + "\n").collect();
    let c = ["probes", "bpf"].map(|folder| text(&format!("crates/tailsight-record/src/{folder}"), ".c")).concat()
        + &text("crates/tailsight-record/src/bpf", ".h");
    let recorder = text("crates/tailsight-record/src", ".rs") + &c;
    let readers: String = ["lifetime", "diagnose", "trace", "record", "pt"]
        .map(|crate_name| text(&format!("crates/tailsight-{crate_name}/src"), ".rs"))
        .concat();
    let page = text("docs/schema.md", ".md");
    // A kind is packed by the function of its name, or where several kinds are packed alike by that of their fields and the constant.
    let constant = |name: &str| format!("TS_{}", split_words(name, "_").to_uppercase());
    let packed = |text: &str, name: &str| has(text, &constant(name)) || has(text, &constant(name).to_lowercase());
    let mut missing = lacking(
        &of_probes,
        &[
            place("the list `events:` at the head of a probe's C", |name| has(&headers, name)),
            place("the C of a probe", |name| packed(&c, name)),
            place("a crate that reads it", |name| has(&readers, &format!("Kind::{name}"))),
        ],
    );
    let written = |name: &str| has(&recorder, &format!("Kind::{name}")) || packed(&recorder, name);
    add(&mut missing, lacking(&of_recorder, &[place("tailsight-record", written)]));
    let names: Vec<String> = kinds.iter().map(|(name, _)| name.clone()).collect();
    let described = place("docs/schema.md", |name| page.contains(&format!("| {name} | ")));
    add(&mut missing, lacking(&names, &[described]));
    assert!(missing.is_empty(), "kinds of crates/tailsight-event/src/event.rs are not in these places: {missing:#?}");
}

/// A probe that writes other tables than events has no such list: samples.
#[test]
fn a_probe_names_only_kinds_that_exist() {
    let kinds: Vec<String> = kinds().into_iter().map(|(name, _)| name).collect();
    let mut unknown = Vec::new();
    for (probe, events) in events_of_probes() {
        let list = events.split([';', '.']).next().unwrap().replace('\n', " ");
        let words =
            list.split(',').map(|word| word.trim().trim_start_matches("* ").split(' ').next().unwrap().to_owned());
        let names = words.filter(|word| !word.is_empty() && word != "and");
        unknown.extend(names.filter(|name| !kinds.contains(name)).map(|name| format!("{probe}: {name}")));
    }
    assert!(unknown.is_empty(), "not in crates/tailsight-event/src/event.rs: {unknown:?}");
}

#[test]
fn a_category_is_at_all_of_its_places() {
    let source = text("crates/tailsight-diagnose/src/cause/category.rs", ".rs");
    let table =
        source.split("\ncategories! {").nth(1).expect("category.rs has the table").split("\n}\n").next().unwrap();
    let names: Vec<String> = table.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect();
    assert!(names.len() >= 20 && names.contains(&"hol-blocking".to_owned()), "{names:?}");

    let rules = text("crates/tailsight-diagnose/data/categories.toml", ".toml");
    let runtimes = text("crates/tailsight-diagnose/data/runtimes.toml", ".toml");
    let advice = text("crates/tailsight-advice/data/advice.toml", ".toml");
    let tests = text("crates/tailsight-diagnose/tests/all", ".rs");
    let (page, examples) = (text("docs/categories.md", ".md"), text("docs/reading-the-output.md", ".md"));
    let mut missing = lacking(
        &names,
        &[
            place("a rule in tailsight-diagnose/data/categories.toml, or a wait in runtimes.toml", |id| {
                rules.contains(&format!("category = \"{id}\"\n"))
                    || runtimes.contains(&format!("waits_are = \"{id}\"\n"))
            }),
            place("its words in tailsight-advice/data/advice.toml", |id| advice.contains(&format!("\n[{id}]\n"))),
            place("a test in tailsight-diagnose/tests/all", |id| tests.contains(&format!("\"{id}\""))),
            place("docs/categories.md", |id| page.contains(&format!("\n| `{id}` | "))),
            place("an example in docs/reading-the-output.md", |id| examples.contains(&format!("\n| `{id}` | "))),
        ],
    );
    // Schemas that are kept as files: one that lists categories lists every one.
    let schemas = repository().join("crates/tailsight/schema");
    let files = std::fs::read_dir(schemas).into_iter().flatten().map(|entry| entry.unwrap().path());
    for file in files {
        let schema = std::fs::read_to_string(&file).unwrap();
        let name = format!("crates/tailsight/schema/{}", file.file_name().unwrap().display());
        if schema.contains("\"os-threads\"") {
            add(&mut missing, lacking(&names, &[place(&name, |id| schema.contains(&format!("\"{id}\"")))]));
        }
    }
    assert!(missing.is_empty(), "categories of cause/category.rs are not in these places: {missing:#?}");
}

/// The values that docs/commands.md allows for an option of a command.
fn values(command: &str, option: &str) -> Vec<String> {
    let page = text("docs/commands.md", ".md");
    let part =
        page.split("\n## ").find(|part| part.starts_with(&format!("tailsight {command}\n"))).expect("the command");
    let row = part.lines().find(|line| line.starts_with(&format!("| `{option} "))).expect("the option");
    let list = row.split("One of ").nth(1).expect("a list of values").split([';', '[', '|']).next().unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn an_export_format_is_at_all_of_its_places() {
    let names = values("export", "--format");
    assert!(names.len() >= 7 && names.contains(&"perfetto".to_owned()), "{names:?}");
    let command = text("crates/tailsight/src/commands/export.rs", ".rs");
    let help = text("crates/tailsight/src/reference", ".rs");
    let page = text("docs/report.md", ".md");
    let tests = text("crates/tailsight/tests/all", ".rs") + &text("crates/tailsight-report/tests", ".rs");
    // `firefox-profiler` is FirefoxProfiler as a variant, and its module may be called by its first word.
    let variant = |name: &str| name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect::<String>();
    let missing = lacking(
        &names,
        &[
            place("crates/tailsight/src/commands/export.rs", |name| {
                has(&command, name) || has(&command, &variant(name))
            }),
            place("the help in crates/tailsight/src/reference", |name| help.contains(&format!("{name}: "))),
            place("docs/report.md", |name| has(&page, name)),
            place("a test", |name| has(&tests, name) || has(&tests, name.split('-').next().unwrap())),
        ],
    );
    assert!(missing.is_empty(), "formats of `export` are not in these places: {missing:#?}");
}

/// The variants of an enum without fields.
fn variants(source: &str, name: &str) -> Vec<String> {
    let body = source.split_once(&format!("pub enum {name} {{\n")).expect("the enum").1.split("\n}").next().unwrap();
    let lines = body.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    lines.map(|line| line.trim_end_matches(',').to_owned()).collect()
}

#[test]
fn a_protocol_that_load_speaks_is_at_all_of_its_places() {
    let names = variants(&text("crates/tailsight-protocol/src/protocol.rs", ".rs"), "Kind");
    assert!(names.len() >= 7 && names.contains(&"Http2".to_owned()), "{names:?}");
    // tailsight-load and the crates above it call the enum by the other name.
    let names_it =
        |text: &str, name: &str| has(text, &format!("Kind::{name}")) || has(text, &format!("Protocol::{name}"));
    let (parser, codec) = (
        text("crates/tailsight-protocol/src/reply/parser.rs", ".rs"),
        text("crates/tailsight-load/src/codec.rs", ".rs"),
    );
    let address = text("crates/tailsight-measure/src/address.rs", ".rs");
    let tests = [text("crates/tailsight-protocol/tests", ".rs"), text("crates/tailsight-load/tests", ".rs")];
    let page = text("docs/load.md", ".md");
    // The scheme of the address: `"redis" | "resp" => Some((Protocol::Resp, "tcp", 6379)),`.
    let scheme = |name: &str| {
        let line = address.lines().find(|line| line.contains("=> Some((") && names_it(line, name))?;
        Some(line.split('"').nth(1)?.to_owned())
    };
    let missing = lacking(
        &names,
        &[
            place("a parser of its replies, crates/tailsight-protocol/src/reply/parser.rs", |name| {
                names_it(&parser, name)
            }),
            place("its requests, crates/tailsight-load/src/codec.rs", |name| names_it(&codec, name)),
            place("a scheme in crates/tailsight-measure/src/address.rs", |name| scheme(name).is_some()),
            place("its scheme in docs/load.md", |name| {
                scheme(name).is_some_and(|scheme| page.contains(&format!("`{scheme}://")))
            }),
            place("a test in crates/tailsight-protocol", |name| names_it(&tests[0], name)),
            place("a test in crates/tailsight-load", |name| names_it(&tests[1], name)),
        ],
    );
    assert!(missing.is_empty(), "protocols of tailsight-protocol's Kind are not in these places: {missing:#?}");
}

#[test]
fn a_protocol_that_a_recording_keeps_is_at_all_of_its_places() {
    let names = variants(&text("crates/tailsight-protocol/src/protocol.rs", ".rs"), "Protocol");
    assert!(names.len() >= 3 && names.contains(&"Resp".to_owned()), "{names:?}");
    let flow = text("crates/tailsight-protocol/src/frame/flow.rs", ".rs");
    let (tests, fuzz) = (text("crates/tailsight-protocol/tests", ".rs"), text("fuzz/fuzz_targets", ".rs"));
    let live = text("crates/tailsight/tests/all", ".rs");
    let (options, page) = (values("record", "--protocol"), text("docs/internals-messages.md", ".md"));
    let missing = lacking(
        &names,
        &[
            place("its flows, crates/tailsight-protocol/src/frame/flow.rs", |name| {
                has(&flow, &format!("Protocol::{name}"))
            }),
            place("a test in crates/tailsight-protocol", |name| has(&tests, &format!("Protocol::{name}"))),
            place("fuzz/fuzz_targets", |name| has(&fuzz, &format!("Protocol::{name}"))),
            place("`record --protocol` in docs/commands.md", |name| options.contains(&name.to_lowercase())),
            place("docs/internals-messages.md", |name| has(&page, &name.to_lowercase())),
            place("a live test in crates/tailsight/tests", |name| {
                live.contains(&format!("\"{}\"", name.to_lowercase()))
            }),
        ],
    );
    assert!(missing.is_empty(), "protocols of tailsight-protocol's Protocol are not in these places: {missing:#?}");
}

#[test]
fn a_name_is_found_where_it_stands_alone() {
    assert!(has("a Kind::Send, b", "Kind::Send") && !has("Kind::SendBegin", "Kind::Send"));
    assert!(!has("memcached-binary", "memcached") && has("`memcached`", "memcached"));
    assert_eq!(split_words("RxNapi", "_"), "Rx_Napi");
    let places = [place("a table", |name| name == "known"), place("a page", |_| true)];
    let lacking = lacking(&["known".to_owned(), "new".to_owned()], &places);
    assert_eq!(lacking, BTreeMap::from([("new".to_owned(), vec!["a table".to_owned()])]));
}
