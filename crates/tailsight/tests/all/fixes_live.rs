//! The fixes of a real run, made by `tailsight fix` and run as they are printed in shell: a value is changed, and what was there
//! before comes back.
//!
//! The server is in a network namespace of its own, where its packets come in on a veth. A category table that calls everything
//! by one name asks for the fixes of that name.

use std::process::Command;

use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::server::{MemcachedOpts, Server};

use tailsight_testing::skip_part;

use crate::support::{Live, address, json, run, shown, stderr, tailsight};

const PORT: u16 = 21311;

/// Runs a command line as a user pastes it, and gives what it printed.
fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    assert!(output.status.success(), "{line}\n{}", shown(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The command and the undo of the first fix of a cause called so that has a command with this word in it.
fn fix(live: &Live, out: &str, category: &str, name: &str, with: &str) -> (String, String) {
    let table = live.path("categories.toml");
    std::fs::write(&table, format!("[[rule]]\ncategory = \"{category}\"\nname = \"{name}\"\nnest = false\n")).unwrap();
    let output = run(&["diagnose", out, "--json", "--leg", "receive", "--focus", "p90..p100", "--categories", &table]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    let steps = d["causes"].as_array().unwrap().iter().flat_map(|c| c["steps"].as_array().into_iter().flatten());
    let commands: Vec<(&str, &str)> = steps.filter_map(|f| f["command"].as_str().zip(f["undo"].as_str())).collect();
    let command = commands.iter().find(|(command, _)| command.contains(with));
    let (command, undo) = command.unwrap_or_else(|| panic!("no {with} in {commands:?}"));
    ((*command).to_owned(), (*undo).to_owned())
}

/// Runs the command twice, then its undo, and checks what `value` says in between.
fn changes_and_comes_back((run, undo): &(String, String), value: impl Fn() -> String, changed: &str) {
    let before = value();
    assert_ne!(before, changed, "nothing to change");
    for _ in 0..2 {
        shell(run);
        assert_eq!(value(), changed, "{run}");
    }
    shell(undo);
    assert_eq!(value(), before, "{undo}");
}

#[test]
fn fixes_change_what_they_say_in_another_network_namespace_and_give_it_back() {
    let name = "fixes_change_what_they_say_in_another_network_namespace_and_give_it_back";
    let Some(live) = Live::new(name) else { return };
    let opts = MemcachedOpts { port: PORT, cpu: Some(0), ..Default::default() };
    let server = Server::memcached(&live.pair.server, opts).unwrap();
    let (pid, out) = (server.pid(), live.path("run"));
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(5_000.0);
    let selector = pid.to_string();
    let record = || run(&["record", "-d", "500ms", "-o", &out, "-p", &selector]);
    let (output, _) = live.under_load(&[load], record);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let devices = tailsight_trace::Run::open(out.as_ref()).unwrap().meta.devices;
    let device = &devices.first().expect("the device that the packets came in on").name;
    assert!(devices.iter().all(|d| !d.here && d.pid == pid), "{devices:?}");

    // Receive packet steering of the veth, which /sys of this namespace does not show.
    let rps = fix(&live, &out, "receive-processing", "net_rx", "rps_cpus");
    assert!(rps.0.contains(device), "{rps:?}");
    assert!(!std::path::Path::new(&format!("/sys/class/net/{device}")).exists(), "{device} is here as well");
    let inside =
        |what: &str| shell(&format!("nsenter -t {pid} -n unshare -m sh -c 'mount -t sysfs sysfs /sys && {what}'"));
    let queue = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    // Not the kernel's default: an undo that writes that is none.
    inside(&format!("echo 1 > {queue}"));
    let mask = || inside(&format!("cat {queue}")).replace([',', '0'], "");
    changes_and_comes_back(&rps, mask, "2");

    // A parameter that each network namespace has for itself; the host's stays.
    let fastopen = fix(&live, &out, "connection-setup", "lab-accept", "tcp_fastopen");
    let host = shell("sysctl -n net.ipv4.tcp_fastopen");
    inside("sysctl -q -w net.ipv4.tcp_fastopen=2");
    changes_and_comes_back(&fastopen, || inside("sysctl -n net.ipv4.tcp_fastopen"), "3");
    assert_eq!(shell("sysctl -n net.ipv4.tcp_fastopen"), host);

    // Threads of which one differs from the others: each has its own cores and policy again.
    shell(&format!("taskset -acp 0 {pid}; t=$(ls /proc/{pid}/task | tail -n 1); taskset -cp 1 $t; chrt -b -p 0 $t"));
    let each = |what: &str| shell(&format!("for t in $(ls /proc/{pid}/task); do {what}; done"));
    let cores = || each("sed -n s/^Cpus_allowed_list:.//p /proc/$t/status");
    let count = cores().lines().count();
    assert!(count > 1 && cores().contains('1'), "{}", cores());
    let of_each_thread = |value: &str| vec![value; count].join("\n");
    let pin = fix(&live, &out, "wakeup-delay", "migrated", "taskset -acp");
    changes_and_comes_back(&pin, cores, &of_each_thread("0"));
    let policy = || each("sed \"s/.*) //\" /proc/$t/stat | cut -d\" \" -f38,39");
    let first = fix(&live, &out, "wakeup-delay", "runnable", "chrt -a -f");
    changes_and_comes_back(&first, policy, &of_each_thread("1 1"));
    // A neighbour by its name, and one that no other program of this machine has.
    let comm = format!("ts-fix-{pid}");
    let program = live.path(&comm);
    tailsight_testing::copy_program("/bin/sleep", &program);
    let mut neighbour = Command::new(&program).arg("60").spawn().unwrap();
    let id = neighbour.id();
    let away = fix(&live, &out, "interference", &comm, "comm");
    let result = std::panic::catch_unwind(|| {
        shell(&format!("taskset -cp 0 {id}"));
        changes_and_comes_back(&away, || shell(&format!("sed -n s/^Cpus_allowed_list:.//p /proc/{id}/status")), "1");
    });
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    result.unwrap();
    let left = shell(&format!("ls /run | grep '^tailsight.*{pid}' || true"));
    assert_eq!(left, "", "an undo leaves nothing behind");
}

/// `tailsight fix` with the fixes of causes called so, on a run of the test's own; the state is in the test's folder.
struct Fixer<'a> {
    live: &'a Live,
    out: String,
    state: String,
}

impl Fixer<'_> {
    fn call(&self, args: &[&str]) -> std::process::Output {
        tailsight(args).env("TAILSIGHT_STATE", &self.state).output().expect("the program was built for this test")
    }

    /// The words of a question under which every cause is called so.
    fn question(&self, category: &str, name: &str) -> Vec<String> {
        let table = self.live.path(&format!("{category}-{}.toml", name.replace(['/', ':', '*'], "_")));
        std::fs::write(&table, format!("[[rule]]\ncategory = \"{category}\"\nname = \"{name}\"\nnest = false\n"))
            .unwrap();
        ["--focus", "p90..p100", "--leg", "receive", "--categories", &table].map(str::to_owned).to_vec()
    }

    /// The words of `fix RUN N` for the first fix with a change of this kind.
    fn words(&self, category: &str, name: &str, kind: &str, with: &str) -> Vec<String> {
        let question = self.question(category, name);
        let words: Vec<&str> = question.iter().map(String::as_str).collect();
        let output = run(&[&["diagnose", self.out.as_str(), "--json"], words.as_slice()].concat());
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        let d = json(&output);
        let actions: Vec<serde_json::Value> =
            d["causes"].as_array().unwrap().iter().filter_map(|c| c["actions"].as_array().cloned()).flatten().collect();
        let is = |a: &&serde_json::Value| {
            a["changes"].as_array().unwrap().iter().any(|c| c["kind"] == kind && c.to_string().contains(with))
        };
        let action = actions.iter().find(is).unwrap_or_else(|| panic!("no {kind} {with} in {actions:?}"));
        let mut words = vec!["fix".to_owned(), self.out.clone(), action["n"].to_string()];
        words.extend(question);
        words
    }

    fn fix(&self, words: &[String], more: &[&str]) -> std::process::Output {
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.call(&words)
    }

    fn is_empty(&self) -> bool {
        let text = std::fs::read_to_string(format!("{}/fixes.toml", self.state)).unwrap();
        !text.contains("[[fix")
    }

    fn json(&self, words: &[String], more: &[&str]) -> serde_json::Value {
        let output = self.fix(words, more);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", shown(&output)))
    }

    /// The same by programs: listed, planned, made, listed as changed, put back.
    fn there_and_back_as_data(&self, words: &[String], value: impl Fn() -> String) {
        let before = value();
        let list = self.json(&[&words[..2], &words[3..]].concat(), &["--json"]);
        let n: u64 = words[2].parse().unwrap();
        let fix = list["fixes"].as_array().unwrap().iter().find(|f| f["n"] == n).expect("the fix is listed");
        let values = fix["here"]["values"].as_u64().unwrap();
        assert!(values > 0 && fix["cause"]["category"].is_string(), "{fix}");
        let plan = self.json(words, &["--json"]);
        assert_eq!((plan["made"].as_bool(), value()), (Some(false), before.clone()));
        assert_eq!(plan["values"].as_array().unwrap().len() as u64, values);
        let made = self.json(words, &["--json", "--yes"]);
        assert_eq!(
            (made["made"].as_bool(), made["changed"].as_u64(), value() == before),
            (Some(true), Some(values), false)
        );
        let status = self.json(&["fix".into()], &["--status", "--json"]);
        assert_eq!(status["fixes"][0]["values"].as_array().map(Vec::len), Some(values as usize), "{status}");
        let undone = self.json(&["fix".into()], &["--undo", "--json"]);
        assert_eq!((undone["left"].as_u64(), value()), (Some(0), before), "{undone}");
        let back = undone["values"].as_array().unwrap().iter().filter(|v| v["outcome"] == "back").count();
        assert_eq!(back as u64, values, "{undone}");
    }

    /// Shown, refused without an answer, made, listed, not made twice, put back by another process.
    fn there_and_back(&self, words: &[String], value: impl Fn() -> String, changed: &str) {
        let before = value();
        assert_ne!(before, changed, "nothing to change: {words:?}");
        let asked = self.fix(words, &[]);
        assert_eq!(asked.status.code(), Some(2), "{}", shown(&asked));
        assert!(stderr(&asked).contains("--yes") && shown(&asked).contains(" -> "), "{}", shown(&asked));
        assert_eq!(value(), before, "nobody said yes");

        let made = self.fix(words, &["--yes"]);
        assert_eq!(made.status.code(), Some(0), "{}", shown(&made));
        assert_eq!(value(), changed, "{}", shown(&made));
        let status = self.call(&["fix", "--status"]);
        assert!(status.status.success() && shown(&status).contains(", before "), "{}", shown(&status));
        let twice = self.fix(words, &["--yes"]);
        assert_eq!(
            (twice.status.code(), stderr(&twice).contains("the value is already set")),
            (Some(3), true),
            "{}",
            shown(&twice)
        );

        let undone = self.call(&["fix", "--undo"]);
        assert_eq!(undone.status.code(), Some(0), "{}", shown(&undone));
        assert_eq!(value(), before, "{}", shown(&undone));
        assert!(self.is_empty(), "{}", shown(&undone));
    }
}

/// Also when an assertion failed, nothing of the host stays changed.
impl Drop for Fixer<'_> {
    fn drop(&mut self) {
        self.call(&["fix", "--undo", "--force"]);
    }
}

#[test]
fn tailsight_fix_makes_what_it_shows_and_puts_it_back() {
    let Some(live) = Live::new("tailsight_fix_makes_what_it_shows_and_puts_it_back") else { return };
    let opts = MemcachedOpts { port: PORT, cpu: Some(0), ..Default::default() };
    let server = Server::memcached(&live.pair.server, opts).unwrap();
    let (pid, out) = (server.pid(), live.path("run"));
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(5_000.0);
    let selector = pid.to_string();
    let record = || run(&["record", "-d", "500ms", "-o", &out, "-p", &selector]);
    let (output, _) = live.under_load(&[load], record);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let device = tailsight_trace::Run::open(out.as_ref()).unwrap().meta.devices[0].name.clone();
    let fixer = Fixer { live: &live, state: live.path("state"), out: out.clone() };

    // Threads of which one differs from the others.
    shell(&format!("taskset -acp 0 {pid}; t=$(ls /proc/{pid}/task | tail -n 1); taskset -cp 1 $t; chrt -b -p 0 $t"));
    let each = |what: &str| shell(&format!("for t in $(ls /proc/{pid}/task); do {what}; done"));
    let cores = || each("sed -n s/^Cpus_allowed_list:.//p /proc/$t/status");
    let policy = || each("chrt -p $t | sed \"s/.*: //\"").replace("SCHED_", "").to_lowercase();
    let disk = || each("LC_ALL=C ionice -p $t");
    let count = cores().lines().count();
    let of_each_thread = |value: &str| vec![value; count].join("\n");
    let pin = fixer.words("wakeup-delay", "migrated", "pin", "");

    // The list changes nothing, and says what can be made here.
    let question: Vec<&str> = pin[3..].iter().map(String::as_str).collect();
    let before = (cores(), policy());
    let list = fixer.call(&[&["fix", out.as_str()], question.as_slice()].concat());
    assert_eq!(list.status.code(), Some(0), "{}", shown(&list));
    assert!(shown(&list).contains("can be applied now") && shown(&list).contains("By hand:"), "{}", shown(&list));
    assert_eq!((cores(), policy()), before);
    let in_shell = fixer.fix(&pin, &["--shell"]);
    assert!(shown(&in_shell).contains("taskset -acp") && shown(&in_shell).contains("; undo: "), "{}", shown(&in_shell));
    assert_eq!((cores(), policy()), before);

    fixer.there_and_back(&pin, cores, &of_each_thread("0"));
    fixer.there_and_back_as_data(&pin, cores);
    fixer.there_and_back(&fixer.words("wakeup-delay", "runnable", "real-time", ""), policy, &of_each_thread("fifo\n1"));
    fixer.there_and_back(
        &fixer.words("disk-wait", "fsync", "disk-first", ""),
        disk,
        &of_each_thread("realtime: prio 4"),
    );

    // In the server's network namespace.
    let inside =
        |what: &str| shell(&format!("nsenter -t {pid} -n unshare -m sh -c 'mount -t sysfs sysfs /sys && {what}'"));
    let rps = fixer.words("receive-processing", "net_rx", "queues", "rps_cpus");
    let mask = || inside(&format!("cat /sys/class/net/{device}/queues/rx-0/rps_cpus")).replace([',', '0'], "");
    fixer.there_and_back(&rps, mask, "2");
    inside("sysctl -q -w net.ipv4.tcp_fastopen=2");
    let fastopen = fixer.words("connection-setup", "lab-accept", "sysctl", "tcp_fastopen");
    fixer.there_and_back(&fastopen, || inside("sysctl -n net.ipv4.tcp_fastopen"), "3");
    let corking = fixer.words("transmit-processing", "queued", "sysctl", "tcp_autocorking");
    fixer.there_and_back(&corking, || inside("sysctl -n net.ipv4.tcp_autocorking"), "0");

    // The host's: on for a moment each.
    for (category, cause, key, changed) in [
        ("paging", "reclaim", "vm.swappiness", "1"),
        ("paging", "reclaim", "vm.watermark_scale_factor", "100"),
        ("paging", "numa-balancing", "kernel.numa_balancing", "0"),
        ("disk-wait", "write", "vm.dirty_background_ratio", "5"),
        ("nic-delay", "NIC to driver", "net.core.busy_poll", "50"),
        ("tcp-recovery", "hole", "net.core.netdev_max_backlog", "10000"),
        ("os-threads", "kcompactd0", "vm.compaction_proactiveness", "0"),
    ] {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        let value = || std::fs::read_to_string(&path).map_or("none".into(), |v| v.trim().to_owned());
        if ["none", changed].contains(&value().as_str()) {
            skip_part(key, format!("it is {} on this host", value()));
            continue;
        }
        fixer.there_and_back(&fixer.words(category, cause, "sysctl", key), value, changed);
    }
    for (category, cause, file, changed) in [
        ("os-threads", "kworker", "/sys/devices/virtual/workqueue/cpumask", "2"),
        ("os-threads", "khugepaged", "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "0"),
        ("os-threads", "ksmd", "/sys/kernel/mm/ksm/run", "0"),
        ("lock-wait", "rcu", "/sys/kernel/rcu_expedited", "1"),
    ] {
        let value = || std::fs::read_to_string(file).map_or("none".into(), |v| v.trim().to_owned());
        if ["none", changed].contains(&value().as_str()) {
            skip_part(file, format!("it is {} on this host", value()));
            continue;
        }
        fixer.there_and_back(&fixer.words(category, cause, "file", file), value, changed);
    }
    let defrag = "/sys/kernel/mm/transparent_hugepage/defrag";
    let chosen = || {
        let text = std::fs::read_to_string(defrag).unwrap_or_default();
        text.split(['[', ']']).nth(1).unwrap_or("none").to_owned()
    };
    if ["none", "defer"].contains(&chosen().as_str()) {
        skip_part(defrag, format!("it is {} on this host", chosen()));
    } else {
        fixer.there_and_back(&fixer.words("paging", "thp-fault", "file", "defrag"), chosen, "defer");
    }

    // A neighbour by its name, and one that no other program of this machine has.
    let comm = format!("ts-fix-{pid}");
    let program = live.path(&comm);
    tailsight_testing::copy_program("/bin/sleep", &program);
    let mut neighbour = Command::new(&program).arg("60").spawn().unwrap();
    let id = neighbour.id();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shell(&format!("taskset -cp 0 {id}"));
        let away = fixer.words("interference", &comm, "pin-named", &comm);
        let value = || shell(&format!("sed -n s/^Cpus_allowed_list:.//p /proc/{id}/status"));
        fixer.there_and_back(&away, value, "1");
        // It ends while it is moved: nothing is left to be put back.
        assert!(fixer.fix(&away, &["--yes"]).status.success());
    }));
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    result.unwrap();
    let undone = fixer.call(&["fix", "--undo"]);
    assert!(undone.status.success() && shown(&undone).contains("no longer exists"), "{}", shown(&undone));
    let nothing = fixer.call(&["fix", "--undo"]);
    assert_eq!(nothing.status.code(), Some(3), "{}", shown(&nothing));

    // What somebody else sets in the meantime is theirs.
    assert!(fixer.fix(&pin, &["--yes"]).status.success());
    shell(&format!("taskset -acp 0-1 {pid}"));
    let others = fixer.call(&["fix", "--undo"]);
    assert_eq!(
        (others.status.code(), shown(&others).contains("changed to 0-1")),
        (Some(1), true),
        "{}",
        shown(&others)
    );
    assert_eq!(cores(), of_each_thread("0-1"));
    let forced = fixer.call(&["fix", "--undo", "--force"]);
    assert!(forced.status.success() && fixer.is_empty(), "{}", shown(&forced));
    assert_eq!(cores(), before.0);

    refusals(&fixer, &pin, (pid, &cores));
    // Its processes have ended.
    drop(server);
    let ended = fixer.fix(&pin, &["--yes"]);
    assert_eq!((ended.status.code(), stderr(&ended).contains("no longer run")), (Some(3), true), "{}", shown(&ended));
}

/// Another user, and a run of another boot or host.
fn refusals(fixer: &Fixer<'_>, pin: &[String], (pid, cores): (u32, &dyn Fn() -> String)) {
    let before = cores();
    let file = format!("{}/run.json", fixer.out);
    let text = std::fs::read_to_string(&file).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let started = format!("\"pid\": {pid}");
    assert!(text.contains(boot.trim()) && text.contains(&started), "{text}");
    for (changed, says) in [
        (text.replace(boot.trim(), "5f1c0d5e-another"), "another host or before the last boot"),
        (text.replace(boot.trim(), ""), "older version"),
        (text.replace("\"comm\": \"memcached\"", "\"comm\": \"mysqld\""), "no longer the mysqld"),
    ] {
        assert_ne!(changed, text);
        std::fs::write(&file, changed).unwrap();
        let refused = fixer.fix(pin, &["--yes"]);
        std::fs::write(&file, &text).unwrap();
        assert_eq!((refused.status.code(), stderr(&refused).contains(says)), (Some(3), true), "{}", shown(&refused));
    }
    // Another user may read the run but not move the server.
    let open =
        |path: &str| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    open(&fixer.live.dir.path().display().to_string());
    // A run is for its owner only, until the owner gives it away.
    let given = Command::new("chmod").args(["-R", "a+rX"]).arg(fixer.live.dir.path()).status().unwrap();
    assert!(given.success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_tailsight")]);
    command.args(pin).arg("--yes").env("TAILSIGHT_STATE", "/nonexistent").stdin(std::process::Stdio::null());
    match command.output() {
        Ok(output) if stderr(&output).contains("failed to execute") => {
            skip_part("another user", "this build's folder is closed to other users");
        }
        Ok(output) => {
            assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
            assert!(stderr(&output).contains("only root can set the cores of"), "{}", shown(&output));
        }
        Err(error) => skip_part("another user", format!("setpriv: {error}")),
    }
    assert_eq!(cores(), before);
}
