//! An OCI image without a daemon: the layout of the Image Format Specification 1.0 in a folder. In: one program, linked statically, for each
//! architecture, and files that go with it. Out: an index with an image for each of them; each has one layer with these files, and no
//! other system around them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Release;
use crate::elf::{Architecture, Program};

/// Where the program is in the image.
const PROGRAM: &str = "usr/bin/tailsight";
/// Where it writes, and where it starts.
const RUNS: &str = "var/lib/tailsight";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What `image` is asked for.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    release: Release,
    /// A program, linked statically; repeat it for another architecture
    #[arg(long = "program", value_name = "FILE", required = true)]
    programs: Vec<PathBuf>,
    /// A file that goes with it, such as a licence, and its path in the image; repeatable
    #[arg(long = "file", value_name = "FILE=PATH", value_parser = placed)]
    files: Vec<(PathBuf, String)>,
    /// The time of --epoch as the configuration has it (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created: String,
}

fn placed(text: &str) -> Result<(PathBuf, String), String> {
    let (file, path) = text.split_once('=').ok_or("write FILE=PATH")?;
    Ok((file.into(), path.trim_start_matches('/').to_owned()))
}

/// Writes the layout.
pub fn write(options: &Options) -> Result<()> {
    let blobs = Blobs::new(&options.release.out)?;
    let mut images = Vec::new();
    let mut architectures = BTreeSet::new();
    for path in &options.programs {
        let bytes = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let program = Program::parse(&bytes).with_context(|| path.display().to_string())?;
        ensure!(program.is_static()?, "{} needs libraries, and the image has none: link it statically", path.display());
        let architecture = program.architecture()?;
        ensure!(architectures.insert(architecture.oci()), "two programs for {}", architecture.oci());
        images.push(image(options, &blobs, &bytes, architecture)?);
    }
    let name = format!("tailsight:{}", options.release.version);
    let mut index = blobs.json(INDEX, &json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": images }))?;
    // The specification's name for the image, which Podman and skopeo take, and the one that containerd takes.
    index["annotations"] = json!({
        "org.opencontainers.image.ref.name": name,
        "io.containerd.image.name": format!("docker.io/library/{name}"),
    });
    let top = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [index] });
    fs::write(options.release.out.join("index.json"), serde_json::to_vec(&top)?)?;
    fs::write(options.release.out.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}

/// The image of one program; its descriptor.
fn image(options: &Options, blobs: &Blobs, program: &[u8], architecture: Architecture) -> Result<Value> {
    let tar = layer(options, program).context("the layer cannot be made")?;
    let diff_id = digest(&tar);
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
    packed.write_all(&tar)?;
    let layer = blobs.write(LAYER, &packed.finish()?)?;
    let labels = json!({
        "org.opencontainers.image.title": "tailsight",
        "org.opencontainers.image.version": options.release.version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    });
    let configuration = blobs.json(
        CONFIGURATION,
        &json!({
            "created": options.created,
            "architecture": architecture.oci(),
            "os": "linux",
            "config": {
                "Entrypoint": [format!("/{PROGRAM}")],
                "Env": ["PATH=/usr/bin"],
                "WorkingDir": format!("/{RUNS}"),
                "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
            "history": [{ "created": options.created, "created_by": "tailsight-package image" }],
        }),
    )?;
    let mut manifest = blobs.json(
        MANIFEST,
        &json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": configuration, "layers": [layer] }),
    )?;
    manifest["platform"] = json!({ "architecture": architecture.oci(), "os": "linux" });
    Ok(manifest)
}

/// The files as a tar, which root owns.
fn layer(options: &Options, program: &[u8]) -> Result<Vec<u8>> {
    let mut files = vec![(PROGRAM.to_owned(), 0o755, program.to_owned())];
    for (source, path) in &options.files {
        let bytes = fs::read(source).with_context(|| format!("{} cannot be read", source.display()))?;
        files.push((path.clone(), 0o644, bytes));
    }
    files.sort();
    let mut tar = tar::Builder::new(Vec::new());
    let head = |kind: tar::EntryType, mode: u32, size: usize| {
        let mut head = tar::Header::new_ustar();
        head.set_entry_type(kind);
        head.set_mode(mode);
        head.set_mtime(options.release.epoch.into());
        head.set_size(size as u64);
        head
    };
    // `/tmp` and the folder of runs, and the folders above each file, once.
    let mut folders: BTreeSet<&Path> = BTreeSet::from([Path::new("tmp"), Path::new(RUNS)]);
    folders.extend(Path::new(RUNS).ancestors().skip(1));
    folders.extend(files.iter().flat_map(|(path, ..)| Path::new(path).ancestors().skip(1)));
    for folder in folders.into_iter().filter(|folder| !folder.as_os_str().is_empty()) {
        let mode = match () {
            () if folder == Path::new("tmp") => 0o1777,
            () if folder == Path::new(RUNS) => 0o700,
            () => 0o755,
        };
        let name = format!("{}/", folder.display());
        tar.append_data(&mut head(tar::EntryType::Directory, mode, 0), name, std::io::empty())?;
    }
    for (path, mode, bytes) in &files {
        tar.append_data(&mut head(tar::EntryType::Regular, *mode, bytes.len()), path, bytes.as_slice())?;
    }
    Ok(tar.into_inner()?)
}

/// The contents of a layout, named by their digests.
struct Blobs(PathBuf);

impl Blobs {
    /// An empty layout; the folder may not be there, so that nothing of another image stays in it.
    fn new(layout: &Path) -> Result<Self> {
        fs::create_dir(layout).with_context(|| format!("{} cannot be made", layout.display()))?;
        let folder = layout.join("blobs/sha256");
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Writes one; its descriptor.
    fn write(&self, media_type: &str, bytes: &[u8]) -> Result<Value> {
        let digest = digest(bytes);
        let name = digest.trim_start_matches("sha256:");
        fs::write(self.0.join(name), bytes).with_context(|| format!("{name} cannot be written"))?;
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() }))
    }

    fn json(&self, media_type: &str, value: &Value) -> Result<Value> {
        self.write(media_type, &serde_json::to_vec(value)?)
    }
}

/// `sha256:` and the digest of bytes, in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), expected);
    }

    #[test]
    fn a_file_is_placed_below_the_root() {
        assert_eq!(placed("a/b=/usr/c"), Ok(("a/b".into(), "usr/c".into())));
        assert!(placed("a/b").is_err());
    }
}
