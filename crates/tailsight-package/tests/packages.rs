//! What `scripts/package.sh` makes, as the tools of those who install it see it: `rpm`, `dpkg-deb`, `tar`, `skopeo`, `runc`.
//!
//! The program that is packed is one of the test's own: a release build takes half an hour, and a package is no better for it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The program that stands for Tailsight: it has a man page and completions, and says when it is started otherwise.
const PROGRAM: &str = r##"
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    char path[4096];
    if (count == 4 && !strcmp(words[1], "man")) {
        snprintf(path, sizeof path, "%s/tailsight.1", words[3]);
        FILE *page = fopen(path, "w");
        return !page || fputs(".TH TAILSIGHT 1\n", page) < 0 || fclose(page);
    }
    if (count == 3 && !strcmp(words[1], "completions")) return printf("# completions of %s\n", words[2]) < 0;
    printf("started with %d words\n", count);
    return 7;
}
"##;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What a command prints; it must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A folder for packages of the test's own program.
struct Packing {
    folder: TempDir,
}

impl Packing {
    /// `link`: what the compiler is told, such as `-static`.
    fn new(link: &[&str]) -> Packing {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program.c");
        fs::write(&source, PROGRAM).unwrap();
        run(Command::new("cc").args(link).arg("-o").arg(folder.path().join("program")).arg(&source));
        Packing { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Calls the script; the path that it prints.
    fn package(&self, kind: &str) -> PathBuf {
        let output = run(Command::new(repository().join("scripts/package.sh"))
            .arg(kind)
            .env("PROGRAM", self.path("program"))
            .env("PACKER", env!("CARGO_BIN_EXE_tailsight_package"))
            .env("CARGO_TARGET_DIR", self.path("target"))
            .env("SOURCE_DATE_EPOCH", "1700000000"));
        PathBuf::from(output)
    }
}

/// The files and links below a folder, with what is in them: the bytes, or where the link leads.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(inside) = folders.pop() {
        for path in fs::read_dir(inside).unwrap().map(|entry| entry.unwrap().path()) {
            let metadata = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            if metadata.is_symlink() {
                files.insert(name, fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes());
            } else if metadata.is_dir() {
                folders.push(path);
            } else {
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn lacking(programs: &[&str]) -> Option<String> {
    programs.iter().find_map(|program| tailsight_testing::lacks_program(program))
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[test]
fn an_rpm_is_whole_and_has_the_files_of_the_deb() {
    if let Some(reason) = lacking(&["rpm", "rpm2cpio", "cpio", "dpkg-deb", "dpkg-shlibdeps"]) {
        return tailsight_testing::skip(reason);
    }
    let packing = Packing::new(&[]);
    let (deb, rpm) = (packing.package("deb"), packing.package("rpm"));
    let [from_deb, from_rpm] = ["from-deb", "from-rpm"].map(|name| packing.path(name));
    run(Command::new("dpkg-deb").arg("-x").args([&deb, &from_deb]));
    fs::create_dir(&from_rpm).unwrap();
    run(Command::new("sh").arg("-c").arg(format!(
        "cd '{}' && rpm2cpio '{}' | cpio -id --quiet",
        from_rpm.display(),
        rpm.display()
    )));

    let mut expected = contents(&from_deb);
    // Debian has the two texts for everyone, a folder of its own for zsh, and a file about the copyright in its own format.
    for licence in ["LICENSE-APACHE", "LICENSE-GPL-2.0"] {
        let path = format!("usr/share/doc/tailsight/{licence}");
        assert!(expected.insert(path, fs::read(repository().join(licence)).unwrap()).is_some(), "{licence}");
    }
    expected.remove("usr/share/doc/tailsight/copyright").unwrap();
    let zsh = expected.remove("usr/share/zsh/vendor-completions/_tailsight").unwrap();
    expected.insert("usr/share/zsh/site-functions/_tailsight".into(), zsh);
    let found = contents(&from_rpm);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found.len() > 30, "{:?}", found.keys());
    let different: Vec<&String> =
        expected.iter().filter(|(path, bytes)| found[*path] != **bytes).map(|(path, _)| path).collect();
    assert!(different.is_empty(), "{different:?}");
    assert_eq!(fs::metadata(from_rpm.join("usr/bin/tailsight")).unwrap().permissions().mode() & 0o7777, 0o755);

    let asks = |format: &str| run(Command::new("rpm").args(["-qp", "--qf", format]).arg(&rpm));
    assert_eq!(
        asks("%{NAME} %{VERSION}-%{RELEASE} %{ARCH}"),
        format!("tailsight {}-1 {}", version(), std::env::consts::ARCH)
    );
    assert_eq!(
        asks("%{BUILDTIME} %{BUILDHOST} [%{FILEMTIMES:day} ]").split(' ').take(2).collect::<Vec<_>>(),
        ["1700000000", "localhost"]
    );
    let requires = run(Command::new("rpm").args(["-qp", "--requires"]).arg(&rpm));
    assert!(requires.lines().any(|line| line == "libc.so.6()(64bit)"), "{requires}");
    let licences = run(Command::new("rpm").args(["-qpL"]).arg(&rpm));
    assert_eq!(licences.lines().count(), 4, "{licences}");
    let digests = run(Command::new("rpm").args(["--checksig", "--verbose"]).arg(&rpm));
    assert!(digests.contains("SHA256 digest: OK") && !digests.contains("BAD"), "{digests}");

    let again = fs::read(&rpm).unwrap();
    assert!(fs::read(packing.package("rpm")).unwrap() == again, "the same files give other bytes");
}

#[test]
fn an_rpm_is_installed_verified_and_removed() {
    if let Some(reason) = tailsight_testing::lacks_root().or_else(|| lacking(&["rpm", "dpkg-deb"])) {
        return tailsight_testing::skip(reason);
    }
    let packing = Packing::new(&[]);
    let rpm = packing.package("rpm");
    let system = packing.path("system");
    fs::create_dir(&system).unwrap();
    let on_system = |arguments: &[&str]| -> Output {
        Command::new("rpm").arg("--root").arg(&system).args(arguments).output().unwrap()
    };
    // What it requires is in no package of this empty system.
    let installed = on_system(&["--install", "--nodeps", rpm.to_str().unwrap()]);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    assert!(system.join("usr/bin/tailsight").is_file());
    let verified = on_system(&["--verify", "--nodeps", "tailsight"]);
    assert_eq!((verified.status.code(), text(&verified.stdout)), (Some(0), String::new()));
    let removed = on_system(&["--erase", "--nodeps", "tailsight"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    assert!(!system.join("usr/bin/tailsight").exists() && !system.join("usr/share/doc/tailsight").exists());
}

/// `cargo binstall` makes the names of a release's file and of the program in it from the manifest.
#[test]
fn the_tarball_is_where_binstall_looks_for_it() {
    if let Some(reason) = lacking(&["xz"]) {
        return tailsight_testing::skip(reason);
    }
    let tarball = Packing::new(&["-static"]);
    let tarball_path = tarball.package("tarball");
    let manifest: toml::Table =
        fs::read_to_string(repository().join("crates/tailsight/Cargo.toml")).unwrap().parse().unwrap();
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let filled = |key: &str| {
        let values =
            [("version", version()), ("target-arch", std::env::consts::ARCH), ("bin", "tailsight"), ("binary-ext", "")];
        let template = binstall[key].as_str().unwrap().to_owned();
        values.iter().fold(template, |text, (name, value)| text.replace(&format!("{{ {name} }}"), value))
    };
    assert_eq!(
        filled("pkg-url").rsplit('/').next(),
        tarball_path.file_name().unwrap().to_str(),
        "the file of a release"
    );
    assert_eq!(filled("pkg-fmt"), "txz");
    let listed = run(Command::new("tar").arg("-tf").arg(&tarball_path));
    assert!(listed.lines().any(|line| line == filled("bin-dir")), "{} is not in {listed}", filled("bin-dir"));
}

#[test]
fn an_image_is_read_by_skopeo_and_has_the_program_and_licences_only() {
    if let Some(reason) = lacking(&["skopeo", "tar"]) {
        return tailsight_testing::skip(reason);
    }
    let packing = Packing::new(&["-static"]);
    let archive = packing.package("image");
    let image = format!("oci-archive:{}:tailsight:{}", archive.display(), version());
    let inspected = run(Command::new("skopeo").args(["inspect", &image]));
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!((&inspected["Os"], &inspected["Created"]), (&"linux".into(), &"2023-11-14T22:13:20Z".into()));
    assert_eq!(inspected["Labels"]["org.opencontainers.image.version"], version());
    // A copy is checked against the digests of the manifest and of the layer.
    let copy = packing.path("copy");
    run(Command::new("skopeo").args(["copy", "--quiet", &image, &format!("dir:{}", copy.display())]));
    let layer = inspected["Layers"][0].as_str().unwrap().trim_start_matches("sha256:");
    let files = run(Command::new("tar").arg("-tzf").arg(copy.join(layer)));
    let files: Vec<&str> = files.lines().filter(|line| !line.ends_with('/')).collect();
    let doc = "usr/share/doc/tailsight";
    let expected = ["APACHE", "BSD-2-Clause", "GPL-2.0", "MIT"].map(|licence| format!("{doc}/LICENSE-{licence}"));
    let third_party = format!("{doc}/THIRD-PARTY.gz");
    assert_eq!(files[0], "usr/bin/tailsight");
    assert_eq!(files[1..5], expected);
    assert_eq!(files[5..], [third_party]);

    let again = fs::read(&archive).unwrap();
    assert!(fs::read(packing.package("image")).unwrap() == again, "the same files give other bytes");
}

#[test]
fn a_release_has_each_kind_with_its_checksum() {
    if let Some(reason) = lacking(&["dpkg-deb", "dpkg-shlibdeps", "xz", "pkg-config", "rustc"]) {
        return tailsight_testing::skip(reason);
    }
    let packing = Packing::new(&["-static"]);
    let folder = packing.package("dist");
    let mut files: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let (version, architecture) = (version(), std::env::consts::ARCH);
    let debian = run(Command::new("dpkg").arg("--print-architecture"));
    let expected = [
        "SHA256SUMS".to_owned(),
        format!("tailsight-{version}-1.{architecture}.rpm"),
        format!("tailsight-{version}-{architecture}.tar.xz"),
        format!("tailsight-{version}.cdx.json"),
        format!("tailsight-{version}.oci.tar"),
        format!("tailsight_{version}-1_{debian}.deb"),
    ];
    assert_eq!(files, expected);
    let checked = run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&folder));
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), expected.len() - 1, "{checked}");
    // A program that is linked statically needs no package.
    assert_eq!(run(Command::new("dpkg-deb").arg("-f").arg(folder.join(&expected[5])).arg("Depends")), "");
}

/// Calls the program that packs, with the words of an image.
fn image(packing: &Packing, programs: &[&Path]) -> Output {
    let mut packer = Command::new(env!("CARGO_BIN_EXE_tailsight_package"));
    packer.args(["image", "--release", "1.2.3", "--epoch", "1", "--created", "1970-01-01T00:00:01Z", "--out"]);
    packer.arg(packing.path("layout"));
    for program in programs {
        packer.arg("--program").arg(program);
    }
    packer.output().unwrap()
}

#[test]
fn an_image_has_an_entry_for_each_architecture() {
    if let Some(reason) = lacking(&["skopeo"]) {
        return tailsight_testing::skip(reason);
    }
    let packing = Packing::new(&["-static"]);
    // Only the head says that it is for Arm: the machine's number, 183, at byte 18.
    let mut arm = fs::read(packing.path("program")).unwrap();
    arm[18..20].copy_from_slice(&183_u16.to_le_bytes());
    fs::write(packing.path("arm"), arm).unwrap();
    let output = image(&packing, &[&packing.path("program"), &packing.path("arm")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let source = format!("oci:{}:tailsight:1.2.3", packing.path("layout").display());
    for architecture in ["amd64", "arm64"] {
        let inspected = run(Command::new("skopeo").args(["--override-arch", architecture, "inspect", &source]));
        let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
        assert_eq!(inspected["Architecture"], architecture);
    }
}

#[test]
fn a_program_that_needs_libraries_is_no_image() {
    let packing = Packing::new(&[]);
    let output = image(&packing, &[&packing.path("program")]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("link it statically"), "{said}");
    let output = image(&Packing::new(&["-static"]), &[Path::new("/nonexistent")]);
    assert!(!output.status.success() && text(&output.stderr).contains("/nonexistent cannot be read"));
}

#[test]
fn an_image_is_started_by_a_runtime() {
    let (runc, crun) = (lacking(&["runc"]), lacking(&["crun"]));
    // Debian 12's crun starts nothing where control groups of both versions are mounted.
    let both_versions = || {
        Path::new("/sys/fs/cgroup/unified").is_dir().then(|| "needs runc, or one version of control groups".to_owned())
    };
    let lacks_runtime = || runc.is_some().then(|| crun.clone().or_else(both_versions)).flatten();
    if let Some(reason) =
        tailsight_testing::lacks_networks().or_else(|| lacking(&["skopeo", "umoci"])).or_else(lacks_runtime)
    {
        return tailsight_testing::skip(reason);
    }
    let runtime = if runc.is_none() { "runc" } else { "crun" };
    let packing = Packing::new(&["-static"]);
    let (archive, layout, bundle) = (packing.package("image"), packing.path("oci"), packing.path("bundle"));
    run(Command::new("skopeo")
        .args(["copy", "--quiet", &format!("oci-archive:{}:tailsight:{}", archive.display(), version())])
        .arg(format!("oci:{}:image", layout.display())));
    run(Command::new("umoci").args(["unpack", "--image", &format!("{}:image", layout.display())]).arg(&bundle));
    // umoci asks for a terminal, which a test has not.
    let configuration = bundle.join("config.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&configuration).unwrap()).unwrap();
    value["process"]["terminal"] = false.into();
    fs::write(&configuration, value.to_string()).unwrap();
    let name = format!("tailsight-package-{}", std::process::id());
    let output = Command::new(runtime)
        .arg("--root")
        .arg(packing.path("containers"))
        .args(["run", "--bundle"])
        .arg(&bundle)
        .arg(name)
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(7), "started with 1 words"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_list_of_components_is_that_of_the_program() {
    use cyclonedx_bom::prelude::{Bom, Validate};
    let packing = Packing::new(&[]);
    let file = packing.path("components.json");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    run(Command::new(env!("CARGO_BIN_EXE_tailsight_package"))
        .args([
            "sbom",
            "--release",
            version(),
            "--epoch",
            "1",
            "--created",
            "2026-11-30T12:00:00Z",
            "--target",
            &target,
        ])
        .args(["--linked", "libelf=0.188", "--out"])
        .arg(&file)
        .arg("--workspace")
        .arg(repository()));
    let json = fs::read(&file).unwrap();
    let bom = Bom::parse_from_json(json.as_slice()).unwrap();
    assert!(bom.validate().passed());

    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["bomFormat"], &json["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(json["metadata"]["component"]["name"], "tailsight");
    let components = json["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    // In it: its own crates, the BPF library, C of the machine. Not in it: what only tests use, and this packer.
    for name in ["tailsight-record", "libbpf-sys", "clap", "libelf"] {
        assert!(named(name).is_some(), "{name} is in the program");
    }
    for name in
        ["proptest", "insta", "jsonschema", "rpm", "cyclonedx-bom", "tailsight-lab", "tailsight-testing", "tailsight"]
    {
        assert!(named(name).is_none(), "{name} is not in the program, or the program itself");
    }
    assert_eq!(
        (&named("clap_derive").unwrap()["scope"], &named("clap").unwrap()["scope"]),
        (&"excluded".into(), &"required".into())
    );
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let of_clap = lock.split("[[package]]").find(|package| package.contains("\nname = \"clap\"\n")).unwrap();
    let checksum = named("clap").unwrap()["hashes"][0]["content"].as_str().unwrap();
    assert!(of_clap.contains(&format!("checksum = \"{checksum}\"")), "{checksum} is not in {of_clap}");

    // Whoever follows the dependencies from the program comes to every component.
    let needs: BTreeMap<&str, Vec<&str>> = json["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| {
            let needed = of["dependsOn"].as_array().into_iter().flatten().map(|to| to.as_str().unwrap());
            (of["ref"].as_str().unwrap(), needed.collect())
        })
        .collect();
    let mut reached = std::collections::BTreeSet::new();
    let mut next = vec![json["metadata"]["component"]["bom-ref"].as_str().unwrap()];
    while let Some(one) = next.pop() {
        if reached.insert(one) {
            next.extend(needs.get(one).into_iter().flatten());
        }
    }
    let unreached: Vec<&serde_json::Value> = components
        .iter()
        .map(|component| &component["bom-ref"])
        .filter(|name| !reached.contains(name.as_str().unwrap()))
        .collect();
    assert!(unreached.is_empty() && components.len() > 100, "{unreached:?} of {}", components.len());
}
