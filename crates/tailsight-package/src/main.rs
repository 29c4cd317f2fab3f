//! Packs what a release build made: an rpm, an OCI image, the list of components. `scripts/package.sh` calls it.
//!
//! In: a folder of staged files, programs, the workspace's manifests. Out: files, the same bytes from the same input: no time but the one
//! that is given, no name of this machine.

mod elf;
mod image;
mod rpm;
mod sbom;

use std::path::PathBuf;

use clap::Parser;

/// Packs a release of Tailsight.
#[derive(Parser)]
#[command(name = "tailsight_package", version)]
enum Cli {
    /// An rpm of the files in a folder
    Rpm(rpm::Options),
    /// An OCI image layout with one program for each architecture, in a folder
    Image(image::Options),
    /// The components of the program, as CycloneDX 1.5 JSON
    Sbom(sbom::Options),
}

/// What is the same in each of them.
#[derive(clap::Args)]
struct Release {
    /// The version of the release
    #[arg(long = "release", value_name = "VERSION")]
    version: String,
    /// The time that the files have, seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    epoch: u32,
    /// Where it is written
    #[arg(short, long, value_name = "PATH")]
    out: PathBuf,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse() {
        Cli::Rpm(options) => rpm::write(&options),
        Cli::Image(options) => image::write(&options),
        Cli::Sbom(options) => sbom::write(&options),
    }
}
