//! The components of the program: every crate that is compiled into it, and the C libraries of the machine that it was linked with. In: the
//! manifests and Cargo.lock, by `cargo tree` and `cargo metadata`, which download nothing that the build did not need; names and versions
//! of the libraries. Out: CycloneDX 1.5 JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cyclonedx_bom::external_models::date_time::DateTime;
use cyclonedx_bom::external_models::normalized_string::NormalizedString;
use cyclonedx_bom::external_models::spdx::SpdxExpression;
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::bom::{Bom, SpecVersion};
use cyclonedx_bom::models::component::{Classification, Component, Components, Scope};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;
use cyclonedx_bom::models::tool::{Tool, Tools};
use cyclonedx_bom::validation::Validate;
use serde_json::Value;

use crate::Release;

/// What `sbom` is asked for.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    release: Release,
    /// The folder of the workspace
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// What the program is built for, as rustc names it
    #[arg(long, value_name = "TRIPLE")]
    target: String,
    /// A library of the machine that is linked into the program, with its version; repeatable
    #[arg(long = "linked", value_name = "NAME=VERSION", value_parser = linked)]
    linked: Vec<(String, String)>,
    /// The time of --epoch (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created: String,
}

fn linked(text: &str) -> Result<(String, String), String> {
    let (name, version) = text.split_once('=').ok_or("write NAME=VERSION")?;
    Ok((name.to_owned(), version.to_owned()))
}

/// Writes the file.
pub fn write(options: &Options) -> Result<()> {
    let tree = cargo(
        options,
        &["tree", "--package", "tailsight", "--edges", "normal", "--prefix", "none", "--format", "{p}"],
    )?;
    let metadata = cargo(options, &["metadata", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("what cargo metadata says")?;
    let lock = std::fs::read_to_string(options.workspace.join("Cargo.lock")).context("Cargo.lock cannot be read")?;
    let bom = bom(options, &Crates { built: built(&tree), metadata: &metadata, checksums: checksums(&lock)? })?;
    let validation = bom.validate_version(SpecVersion::V1_5);
    ensure!(validation.passed(), "the list of components is not as CycloneDX 1.5 has it: {validation:?}");
    let mut json = Vec::new();
    bom.output_as_json_v1_5(&mut json).context("the list of components cannot be written as JSON")?;
    json.push(b'\n');
    let out = &options.release.out;
    std::fs::write(out, json).with_context(|| format!("{} cannot be written", out.display()))
}

/// What cargo says for the target, with Cargo.lock as it is.
fn cargo(options: &Options, arguments: &[&str]) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let target = if arguments[0] == "metadata" { "--filter-platform" } else { "--target" };
    cargo.args(arguments).args(["--locked", target, &options.target]).current_dir(&options.workspace);
    let output = cargo.output().context("cargo cannot be started")?;
    ensure!(output.status.success(), "cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("what cargo says is no text")
}

type Crate = (String, String);

/// The crates of the tree, by name and version: `name v1.2.3 (proc-macro)`.
fn built(tree: &str) -> BTreeSet<Crate> {
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    tree.lines().filter_map(of).collect()
}

/// The SHA-256 of each crate's file in its registry.
fn checksums(lock: &str) -> Result<BTreeMap<Crate, String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock is no TOML")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no packages")?;
    let of = |package: &toml::Value| {
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(of).collect())
}

/// What is known of the crates.
struct Crates<'a> {
    built: BTreeSet<Crate>,
    metadata: &'a Value,
    checksums: BTreeMap<Crate, String>,
}

impl Crates<'_> {
    /// The packages that are built into the program, by cargo's id.
    fn packages(&self) -> BTreeMap<&str, &Value> {
        let packages = self.metadata["packages"].as_array().into_iter().flatten();
        let named = packages.filter_map(|package| Some((package["id"].as_str()?, package)));
        named.filter(|(_, package)| self.built.contains(&identity(package))).collect()
    }

    fn component(&self, package: &Value) -> Result<Component> {
        let (name, version) = identity(package);
        let kinds = |target: &Value| target["kind"].as_array().cloned().unwrap_or_default();
        let is_macro =
            package["targets"].as_array().into_iter().flatten().flat_map(kinds).any(|kind| kind == "proc-macro");
        let mut component = library(Purl::new("cargo", &name, &version)?, &name, &version);
        component.description = package["description"].as_str().map(NormalizedString::new);
        // A macro runs while the program is compiled, and is not in it.
        component.scope = Some(if is_macro { Scope::Excluded } else { Scope::Required });
        component.licenses = package["license"].as_str().map(licence).transpose()?;
        component.hashes = self
            .checksums
            .get(&(name, version))
            .map(|checksum| Hashes(vec![Hash { alg: HashAlgorithm::SHA_256, content: HashValue(checksum.clone()) }]));
        Ok(component)
    }

    /// What each of the packages needs of the others, by cargo's ids.
    fn needs<'a>(&'a self, packages: &BTreeMap<&str, &Value>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let is_normal = |dependency: &&Value| {
            dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        };
        let nodes = self.metadata["resolve"]["nodes"].as_array().into_iter().flatten();
        let needs = nodes.filter_map(|node| {
            let needed = node["deps"].as_array()?.iter().filter(is_normal).filter_map(|needed| needed["pkg"].as_str());
            Some((node["id"].as_str()?, needed.filter(|id| packages.contains_key(id)).collect()))
        });
        needs.filter(|(id, _)| packages.contains_key(id)).collect()
    }
}

/// The name and the version of a package.
fn identity(package: &Value) -> Crate {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

/// A component that others can refer to by its address.
fn library(address: Purl, name: &str, version: &str) -> Component {
    let mut component = Component::new(Classification::Library, name, version, Some(address.to_string()));
    component.purl = Some(address);
    component
}

/// A licence; older crates write `MIT/Apache-2.0`.
fn licence(text: &str) -> Result<Licenses> {
    let expression = SpdxExpression::parse_lax(text.to_owned()).with_context(|| format!("the licence {text}"))?;
    Ok(Licenses(vec![LicenseChoice::Expression(expression)]))
}

/// The document.
fn bom(options: &Options, crates: &Crates) -> Result<Bom> {
    let packages = crates.packages();
    ensure!(packages.len() == crates.built.len(), "cargo tree names packages that cargo metadata does not have");
    let mut components = BTreeMap::new();
    for (id, package) in &packages {
        components.insert(*id, crates.component(package)?);
    }
    let reference = |id: &str| components[id].bom_ref.clone().unwrap_or_default();
    let mut dependencies: Vec<Dependency> = crates
        .needs(&packages)
        .into_iter()
        .map(|(id, needed)| Dependency {
            dependency_ref: reference(id),
            dependencies: needed.into_iter().map(reference).collect(),
        })
        .collect();
    let (main, mut program) = packages
        .iter()
        .find(|(_, package)| package["name"] == "tailsight")
        .map(|(id, _)| (*id, components[id].clone()))
        .context("cargo tree does not name the program")?;
    program.component_type = Classification::Application;
    components.remove(main);
    let mut components: Vec<Component> = components.into_values().collect();
    for (name, version) in &options.linked {
        let component = library(Purl::new("generic", name, version)?, name, version);
        let of_program = dependencies.iter_mut().find(|of| Some(&of.dependency_ref) == program.bom_ref.as_ref());
        let of_program = of_program.context("nothing is known of what the program needs")?;
        of_program.dependencies.extend(component.bom_ref.clone());
        components.push(component);
    }
    let tool = Tool::new("tailsight", "tailsight-package", env!("CARGO_PKG_VERSION"));
    let metadata = Metadata {
        timestamp: Some(DateTime::try_from(options.created.clone()).context("--created")?),
        tools: Some(Tools::List(vec![tool])),
        component: Some(program),
        ..Metadata::default()
    };
    Ok(Bom {
        spec_version: SpecVersion::V1_5,
        metadata: Some(metadata),
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_a_tree_are_read_with_and_without_marks() {
        let tree = "tailsight v0.1.0 (/a folder/tailsight)\nserde_derive v1.0.2 (proc-macro)\nlibc v0.2.1\nlibc v0.2.1 (*)\n\n";
        let expected = [("libc", "0.2.1"), ("serde_derive", "1.0.2"), ("tailsight", "0.1.0")];
        assert_eq!(built(tree), expected.map(|(name, version)| (name.to_owned(), version.to_owned())).into());
    }

    #[test]
    fn a_checksum_is_of_its_version() {
        let lock = "version = 4\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n\
                    [[package]]\nname = \"a\"\nversion = \"2.0.0\"\nchecksum = \"11ee\"\n\
                    [[package]]\nname = \"own\"\nversion = \"1.0.0\"\n";
        let checksums = checksums(lock).unwrap();
        let of = |version: &str| checksums.get(&("a".to_owned(), version.to_owned())).map(String::as_str);
        assert_eq!((of("1.0.0"), of("2.0.0"), checksums.len()), (Some("00ff"), Some("11ee"), 2));
    }

    #[test]
    fn an_old_way_to_write_two_licences_is_an_expression() {
        let of = |text: &str| match &licence(text).unwrap().0[0] {
            LicenseChoice::Expression(expression) => expression.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!((of("MIT/Apache-2.0").as_str(), of("MIT").as_str()), ("MIT OR Apache-2.0", "MIT"));
        assert!(licence("no licence that SPDX has").is_err());
    }
}
