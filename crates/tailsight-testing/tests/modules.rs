//! The files of a crate depend on each other in one direction: no circle has more than two of them. In: the sources. Out: the
//! circles.
//!
//! What counts is what a file names: `use crate::…`, `use super::…` and such paths, without its tests. A file that declares others may
//! name them, for that is how a folder shows what it has, and the crate's root is nobody's circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file by the path of its module.
type Module = Vec<String>;

/// The modules of a crate, each with those that it names.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The sources below a folder, by module.
fn sources(folder: &Path, module: &Module, found: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            sources(&path, &[module.as_slice(), &[name]].concat(), found);
        } else if let Some(name) = name.strip_suffix(".rs") {
            let module = match name {
                "mod" | "lib" | "main" => module.clone(),
                name => [module.as_slice(), &[name.to_owned()]].concat(),
            };
            found.insert(module, std::fs::read_to_string(path).unwrap());
        }
    }
}

/// The source without comments and without its tests.
fn bare(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths of a tree of `use`, `a::{b, c::d}`, each with its start.
fn expanded(start: &[&str], tree: &str, out: &mut Vec<Vec<String>>) {
    let (mut depth, mut from) = (0_u32, 0);
    for (at, c) in tree.char_indices().chain([(tree.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let part = tree[from..at].trim();
                from = at + 1;
                let (head, inner) = match part.split_once('{') {
                    Some((head, inner)) => (head, inner.rsplit_once('}').map(|(inner, _)| inner)),
                    None => (part.split(" as ").next().unwrap_or_default(), None),
                };
                let names = head.split("::").map(str::trim).filter(|name| !name.is_empty());
                let path: Vec<&str> = start.iter().copied().chain(names).collect();
                match inner {
                    Some(inner) => expanded(&path, inner, out),
                    None => out.push(path.into_iter().map(str::to_owned).collect()),
                }
            }
            _ => {}
        }
    }
}

/// The paths that a source names: those of its `use` and, elsewhere, those from `crate` or `super`.
fn named(code: &str) -> Vec<Vec<String>> {
    let mut out = vec![];
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let is_use = |at: usize| at == 0 || !statement.as_bytes()[at - 1].is_ascii_alphanumeric();
        match statement.match_indices("use ").find(|(at, _)| is_use(*at)) {
            Some((at, _)) => {
                expanded(&[], statement[at + 4..].trim_end_matches(';'), &mut out);
                rest += &statement[..at];
            }
            None => rest += statement,
        }
    }
    for word in rest.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c))) {
        if word.starts_with("crate::") || word.starts_with("super::") {
            out.push(word.split("::").map(str::to_owned).collect());
        }
    }
    out
}

/// Which module a path in another one leads to.
fn target(modules: &BTreeMap<Module, String>, from: &Module, path: &[String]) -> Option<Module> {
    let mut names = path;
    let mut at = match path.first()?.as_str() {
        "crate" => vec![],
        "super" | "self" => from.clone(),
        first if modules.contains_key(&[from.as_slice(), &[first.to_owned()]].concat()) => from.clone(),
        _ => return None,
    };
    while let [first, rest @ ..] = names
        && ["crate", "super", "self"].contains(&first.as_str())
    {
        if first == "super" {
            at.pop();
        }
        names = rest;
    }
    for name in names {
        let next = [at.as_slice(), std::slice::from_ref(name)].concat();
        if !modules.contains_key(&next) {
            break;
        }
        at = next;
    }
    Some(at)
}

fn graph(modules: &BTreeMap<Module, String>) -> Graph {
    let of = |(from, source): (&Module, &String)| {
        let all = named(&bare(source)).into_iter().filter_map(|path| target(modules, from, &path));
        let counts = |to: &Module| !to.is_empty() && !to.starts_with(from);
        (from.clone(), all.filter(counts).collect())
    };
    modules.iter().filter(|(module, _)| !module.is_empty()).map(of).collect()
}

/// Everything that a module leads to.
fn reached(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    found
}

/// The circles with more than two files.
fn circles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let all: BTreeMap<&Module, BTreeSet<Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let with = |module: &Module| -> Vec<String> {
        let both = all[module].iter().filter(|other| all.get(other).is_some_and(|back| back.contains(module)));
        both.map(|module| module.join("/")).collect()
    };
    graph.keys().map(with).filter(|circle| circle.len() > 2).collect()
}

#[test]
fn no_three_files_of_a_crate_form_a_circle() {
    let root = repository();
    let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut found = BTreeMap::new();
    // Two programs: each has its own root.
    let lab = [root.join("lab/src"), root.join("lab/bench")];
    for folder in crates.map(|member| member.join("src")).chain(lab) {
        let mut modules = BTreeMap::new();
        sources(&folder, &vec![], &mut modules);
        let circles = circles(&graph(&modules));
        if !circles.is_empty() {
            found.insert(folder, circles);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_circle_is_found_through_every_way_to_name_a_module() {
    let of = |files: &[(&str, &str)]| {
        let module = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let modules = files.iter().map(|(name, source)| (module(name), (*source).to_owned())).collect();
        circles(&graph(&modules)).into_iter().map(|circle| circle.join(" ")).collect::<Vec<_>>()
    };
    let a = ("a", "use std::io;\nuse crate::{x::Y, b::{self, c as d}};\n");
    let b = ("b", "fn f() { super::folder::g() }\n");
    let folder = ("folder", "mod inner;\npub use inner::g;\n");
    let inner = ("folder/inner", "use super::super::a::Thing;\n");
    let through = ("folder", "mod inner;\nfn h(_: crate::a::Thing) {}\n");
    assert_eq!(of(&[a, b, through, inner]), ["a b folder"]);
    // A folder that only shows what is in it, a name in a comment or a test, two files, the root.
    assert!(of(&[a, b, folder, inner]).is_empty());
    let comment = ("folder", "// crate::a\n#[cfg(test)]\nmod tests { use crate::a; }\n");
    assert!(of(&[a, b, comment]).is_empty());
    assert!(of(&[("a", "use crate::b::X;"), ("b", "use crate::a::X;")]).is_empty());
    assert!(
        of(&[("", "use crate::a::X;"), ("a", "use crate::X; use crate::b::Y;"), ("b", "use crate::X;")]).is_empty()
    );
}

/// A sentence is made once, of what is known: one that is edited or taken apart later says what its first author did not mean as soon as its
/// words change.
#[test]
fn no_sentence_is_edited_or_taken_apart() {
    /// How a text is edited or taken apart, and where that is no sentence: the file and why.
    const WAYS: [(&str, &[(&str, &str)]); 2] =
        [(".replacen(", &[("html", "the policy of a page")]), ("split_once(\"; ", &[])];
    let mut read = 0;
    let mut wrong = vec![];
    for entry in std::fs::read_dir(repository().join("crates")).unwrap().map(Result::unwrap) {
        let mut of_crate = BTreeMap::new();
        let folder = entry.path().join("src");
        if folder.is_dir() {
            sources(&folder, &vec![], &mut of_crate);
        }
        for (module, source) in of_crate {
            read += 1;
            let (module, code) = (module.join("/"), bare(&source));
            let is_allowed = |files: &[(&str, &str)]| files.iter().any(|(file, _)| module == *file);
            let here = WAYS.iter().filter(|(way, files)| code.contains(way) && !is_allowed(files));
            let name = entry.file_name();
            wrong.extend(here.map(|(way, _)| format!("{}/{module}: {way}", name.to_string_lossy())));
        }
    }
    assert!(read > 300, "{read} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Where a script takes a text apart or edits it at something that has a blank, as what stands between the words of a sentence has.
fn takes_apart(script: &str) -> Vec<String> {
    const METHODS: [&str; 10] = [
        "split",
        "indexOf",
        "lastIndexOf",
        "replace",
        "replaceAll",
        "match",
        "search",
        "startsWith",
        "endsWith",
        "includes",
    ];
    let mut out = vec![];
    for (at, _) in script.match_indices('.') {
        let rest = &script[at + 1..];
        let Some((method, rest)) = rest.split_once('(').filter(|(name, _)| METHODS.contains(name)) else { continue };
        let Some(quote) = rest.chars().next().filter(|c| "\"'`/".contains(*c)) else { continue };
        let literal = rest[1..].split(quote).next().unwrap_or_default();
        if literal.contains(' ') {
            out.push(format!("{method}({quote}{literal}{quote}"));
        }
    }
    out
}

/// The page got a fix as one text and looked for its command, its reason and its undo in it.
#[test]
fn the_page_takes_no_sentence_apart() {
    /// Where that is no sentence: the file, and why.
    const ALLOWED: [(&str, &str); 2] =
        [("units.ts", "a number and its unit, for the eye"), ("bar.tsx", "what a person looks for")];
    fn look(folder: &Path, wrong: &mut Vec<String>) -> usize {
        let mut read = 0;
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                read += look(&path, wrong);
            } else if name.ends_with(".ts") || name.ends_with(".tsx") {
                read += 1;
                let found = takes_apart(&std::fs::read_to_string(&path).unwrap());
                let is_allowed = ALLOWED.iter().any(|(file, _)| *file == name);
                wrong.extend(found.into_iter().filter(|_| !is_allowed).map(|way| format!("{name}: {way}")));
            }
        }
        read
    }
    let mut wrong = vec![];
    let read = look(&repository().join("web/src"), &mut wrong);
    assert!(read > 20, "{read} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_script_that_takes_sentences_apart_is_found() {
    let found = takes_apart(r#"text.slice(at + 4).split("; undo: "); text.indexOf("  # "); why.replace(/^N.A: /, "")"#);
    assert_eq!(found, [r#"split("; undo: ""#, r#"indexOf("  # ""#, "replace(/^N.A: /"]);
    assert!(takes_apart(r#"names.split(","); list.join("; "); id.replace("-", " "); a.includes(b)"#).is_empty());
}
