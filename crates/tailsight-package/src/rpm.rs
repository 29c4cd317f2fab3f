//! An rpm of staged files. In: a folder that looks as the machine will (`usr/bin/tailsight` …), the words of the package. Out: the rpm, not
//! signed; whoever distributes it signs it with `rpmsign`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

use crate::Release;
use crate::elf::Program;

/// The package's own licence, and that of the BPF programs in it. What others' code is in the program is in THIRD-PARTY.gz.
const LICENSE: &str = "(Apache-2.0 OR MIT) AND (GPL-2.0-only OR BSD-2-Clause)";
/// The program, which tells the architecture and what is needed.
const PROGRAM: &str = "usr/bin/tailsight";
/// The folder that only this package has files in.
const DOCUMENTATION: &str = "usr/share/doc/tailsight";

/// What `rpm` is asked for.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    release: Release,
    /// The folder of the files, as they will lie below /
    #[arg(long, value_name = "DIR")]
    stage: PathBuf,
    /// The text that describes the package: its first line in short, the rest at length
    #[arg(long, value_name = "FILE")]
    description: PathBuf,
    /// Who made the package
    #[arg(long, value_name = "NAME")]
    packager: String,
}

/// Writes the rpm.
pub fn write(options: &Options) -> Result<()> {
    let release = &options.release;
    let program = fs::read(options.stage.join(PROGRAM)).with_context(|| format!("{PROGRAM} is not staged"))?;
    let program = Program::parse(&program)?;
    let description = fs::read_to_string(&options.description)
        .with_context(|| format!("{} cannot be read", options.description.display()))?;
    let (summary, text) = description.split_once('\n').context("the description has one line only")?;

    let version = &release.version;
    let mut package = PackageBuilder::new("tailsight", version, LICENSE, program.architecture()?.rpm(), summary);
    package
        .using_config(BuildConfig::v4().compression(CompressionType::Gzip).source_date(release.epoch))
        .build_host("localhost")
        .packager(options.packager.as_str())
        .description(text.trim())
        .group("Development/Debuggers");
    for requirement in program.requirements()? {
        package.requires(Dependency::any(requirement));
    }
    for path in staged(&options.stage)? {
        add(&mut package, &options.stage, &path).with_context(|| format!("{} cannot be packed", path.display()))?;
    }
    let package = package.build().context("the rpm cannot be built")?;
    let out = &release.out;
    package.write_file(out).with_context(|| format!("{} cannot be written", out.display()))
}

/// What lies below a folder, relative to it, in the order of the names: a folder before what is in it.
fn staged(stage: &Path) -> Result<Vec<PathBuf>> {
    let (mut paths, mut folders) = (Vec::new(), vec![stage.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
            let path = entry?.path();
            if path.symlink_metadata()?.is_dir() {
                folders.push(path.clone());
            }
            paths.push(path.strip_prefix(stage)?.to_owned());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Adds a file, a link, or a folder that is the package's own.
fn add(package: &mut PackageBuilder, stage: &Path, path: &Path) -> Result<()> {
    let (source, metadata) = (stage.join(path), stage.join(path).symlink_metadata()?);
    let name = path.to_str().context("its name is no text")?;
    let target = format!("/{name}");
    if metadata.is_symlink() {
        let to = fs::read_link(&source)?;
        package.with_symlink(FileOptions::symlink(target, to.to_str().context("its target is no text")?))?;
    } else if metadata.is_dir() {
        // Others' packages own the rest: /usr/bin, /usr/share/man …
        if path.starts_with(DOCUMENTATION) {
            package.with_dir_entry(FileOptions::dir(target))?;
        }
    } else {
        ensure!(metadata.is_file(), "neither file, folder nor link");
        let mode = metadata.permissions().mode() as u16 & 0o777;
        let options = FileOptions::new(target).permissions(mode);
        let is_licence = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"LICENSE"));
        let options = match () {
            () if is_licence => options.license(),
            () if path.starts_with("usr/share/doc") || path.starts_with("usr/share/man") => options.doc(),
            () => options,
        };
        package.with_file(source, options)?;
    }
    Ok(())
}
