//! Man pages and completions as the tools that read them see them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::support::{run, shown};

/// Runs a program with a text on its standard input.
fn fed(program: &str, args: &[&str], text: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let mut input = child.stdin.take().expect("piped");
    let text = text.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&text));
    let output = child.wait_with_output().expect("it ends");
    writer.join().unwrap().unwrap();
    output
}

#[test]
fn the_man_pages_are_files_that_groff_reads_without_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man1").display().to_string();
    let output = run(&["man", "-o", &folder]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", shown(&output));
    let mut names: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.contains(&"tailsight.1".to_owned()) && names.contains(&"tailsight-record.1".to_owned()), "{names:?}");
    // Twice the same bytes.
    for (name, command) in [("tailsight.1", None), ("tailsight-record.1", Some("record"))] {
        let words: Vec<&str> = std::iter::once("man").chain(command).collect();
        assert_eq!(run(&words).stdout, std::fs::read(format!("{folder}/{name}")).unwrap(), "{name}");
    }
    if let Some(reason) = tailsight_testing::lacks_program("groff") {
        return tailsight_testing::skip_part("groff's reading of them", reason);
    }
    for name in names {
        let page = std::fs::read(format!("{folder}/{name}")).unwrap();
        let output = fed("groff", &["-man", "-ww", "-Tutf8", "-Kutf8"], &page);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", shown(&output));
    }
}

/// What bash offers after `tailsight re` and other beginnings.
#[test]
fn bash_completes_commands_and_options() {
    let script = run(&["completions", "bash"]);
    assert!(script.status.success(), "{}", shown(&script));
    let asked = "\nCOMP_WORDS=(tailsight \"$1\" \"$2\"); COMP_CWORD=$3\n_tailsight tailsight \"${COMP_WORDS[$3]}\" \"${COMP_WORDS[$3-1]}\"\nprintf '%s\\n' \"${COMPREPLY[@]}\"";
    let asking_script = String::from_utf8(script.stdout).unwrap() + asked;
    for (first, second, at, offers) in
        [("re", "", "1", "record"), ("comp", "", "1", "completions"), ("record", "--nic", "2", "--nic-tx-stamps")]
    {
        let output = Command::new("bash").args(["-c", &asking_script, "bash", first, second, at]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.lines().any(|line| line == offers), "{first} {second}: {}", shown(&output));
    }
}

/// What zsh makes of a line when Tab is pressed behind it: an interactive zsh on a terminal of its own. $1: the folder of the script, then
/// lines.
const ASK_ZSH: &str = r#"
zmodload zsh/zpty
setopt extendedglob
folder=$1; shift
for typed in "$@"; do
    zpty z "zsh -f -i"
    zpty -w z "PROMPT=; fpath=($folder \$fpath); autoload -Uz compinit; compinit -u -D
        show() { zle -I; print -r -- \"<<\$BUFFER>>\"; BUFFER= }; zle -N show
        bindkey '^I' complete-word; bindkey '^X' show; print REA''DY"
    while zpty -r z line; do [[ $line == *READY* ]] && break; done
    zpty -w -n z "$typed"$'\t\x18'
    while zpty -r z line; do [[ $line == *'<<'*'>>'* ]] && [[ $line != *BUFFER* ]] && break; done
    print -r -- "${${line##*<<}%%>>*}"
    zpty -d z
done
"#;

/// What the shells themselves offer, where they are installed.
#[test]
fn zsh_and_fish_complete_commands_options_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let written = |shell: &str, file: &str| {
        let script = run(&["completions", shell]);
        assert!(script.status.success(), "{}", shown(&script));
        std::fs::write(dir.path().join(file), script.stdout).unwrap();
    };
    written("zsh", "_tailsight");
    written("fish", "tailsight.fish");
    if let Some(reason) = tailsight_testing::lacks_program("zsh") {
        tailsight_testing::skip_part("zsh's completions", reason);
    } else {
        let lines = [
            ("tailsight recor", "tailsight record "),
            ("tailsight record --nic-t", "tailsight record --nic-tx-stamps "),
            ("tailsight record --protocol mem", "tailsight record --protocol memcached "),
            ("tailsight schema dia", "tailsight schema diagnose "),
        ];
        let output = Command::new("timeout")
            .args(["60", "zsh", "-f", "-c", ASK_ZSH, "zsh"])
            .arg(dir.path())
            .args(lines.map(|(typed, _)| typed))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().collect::<Vec<_>>(), lines.map(|(_, completed)| completed), "{}", shown(&output));
    }
    if let Some(reason) = tailsight_testing::lacks_program("fish") {
        return tailsight_testing::skip_part("fish's completions", reason);
    }
    for (typed, offered) in [
        ("tailsight recor", "record"),
        ("tailsight record --nic-t", "--nic-tx-stamps"),
        ("tailsight record --protocol mem", "memcached"),
        ("tailsight schema dia", "diagnose"),
        ("tailsight completions ba", "bash"),
    ] {
        let output = Command::new("fish")
            .args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"])
            .arg(dir.path().join("tailsight.fish"))
            .arg(typed)
            // Files of the working directory are offered, too.
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.lines().any(|line| line.split('\t').next() == Some(offered)), "{typed}: {}", shown(&output));
    }
}

#[test]
fn a_page_of_no_command_is_wrong_usage() {
    let output = run(&["man", "nothing"]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(shown(&output).contains("the commands are tailsight, doctor"), "{}", shown(&output));
}
