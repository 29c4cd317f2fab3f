//! The lab's control groups. In: a controller, settings, a pid. Out: a group with the process in it, removed by [`remove`].
//! Only groups that were made here are written to.
//!
//! Groups are made at the top of the hierarchy (v2: where the controller is on for children, as systemd has it), beside
//! existing groups and not inside them. So that no limit can be escaped that way, a lab whose own group has a limit of the
//! controller gets none.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailsight_host::cgroup::{self, Groups};

use super::state::State;

/// The groups of this process.
const OURS: &str = "/proc/self/cgroup";

/// Where a controller can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A v1 hierarchy: the folder to make groups in.
    V1(PathBuf),
    /// The v2 hierarchy: the folder to make groups in.
    V2(PathBuf),
}

/// Finds a controller (`cpu`, `memory`), or says why it cannot be used.
pub fn find(controller: &str) -> Result<Place, String> {
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(|e| format!("cannot read the mounts: {e}"))?;
    let groups = std::fs::read(OURS).map_err(|e| format!("cannot read our groups: {e}"))?;
    let groups = Groups::parse(groups);
    let place = choose(controller, &mounts, &groups, |path| std::fs::read_to_string(path).unwrap_or_default())?;
    let (Place::V1(folder) | Place::V2(folder)) = &place;
    if !folder.is_dir() {
        return Err(format!("{} is not there", folder.display()));
    }
    Ok(place)
}

/// The choice, from the texts of /proc.
fn choose(controller: &str, mounts: &[u8], groups: &Groups, read: impl Fn(&Path) -> String) -> Result<Place, String> {
    let mount = |controller: &str| cgroup::mounts(mounts, controller).into_iter().next().map(|mount| mount.at);
    let (place, own, limit) = if let Some(root) = mount(controller) {
        let limit = if controller == "cpu" { "cpu.cfs_quota_us" } else { "memory.limit_in_bytes" };
        (Place::V1(root), below(groups, controller), limit)
    } else {
        let root = mount("").ok_or_else(|| "no control groups are mounted".to_owned())?;
        let given = read(&root.join("cgroup.subtree_control"));
        if !given.split_ascii_whitespace().any(|one| one == controller) {
            return Err(format!(
                "the controller {controller} is neither mounted (v1) nor given to children of {} (v2)",
                root.display()
            ));
        }
        let limit = if controller == "cpu" { "cpu.max" } else { "memory.max" };
        (Place::V2(root), below(groups, ""), limit)
    };
    let (Place::V1(root) | Place::V2(root)) = &place;
    let own = own.ok_or_else(|| format!("our group of the controller {controller} is not known"))?;
    let text = read(&root.join(own).join(limit));
    let word = text.split_ascii_whitespace().next().unwrap_or("max");
    // v1 says "no limit" with -1 or with a number near the largest.
    let free = word == "max" || word.parse::<i64>().is_ok_and(|n| !(0..i64::MAX / 2).contains(&n));
    if free {
        Ok(place)
    } else {
        let own = own.display();
        Err(format!("the group that the lab runs in (/{own}) has a limit of its own ({limit} is {word})"))
    }
}

/// The path of a group, from the top of its hierarchy.
fn below<'a>(groups: &'a Groups, controller: &str) -> Option<&'a Path> {
    groups.path(controller)?.strip_prefix("/").ok()
}

/// Makes a group, writes its settings (file of v1, file of v2, text of v1, text of v2) and moves a process into it.
pub fn enter(state: &mut State, place: &Place, settings: &[[String; 4]], pid: u32) -> anyhow::Result<()> {
    let (Place::V1(parent) | Place::V2(parent)) = place;
    let group = parent.join(format!("tailsight-lab-{}-{pid}", std::process::id()));
    state.cgroup(&group)?;
    std::fs::create_dir(&group).with_context(|| format!("cannot make the control group {}", group.display()))?;
    for [file1, file2, text1, text2] in settings {
        let (file, text) = if matches!(place, Place::V1(_)) { (file1, text1) } else { (file2, text2) };
        let file = group.join(file);
        std::fs::write(&file, text).with_context(|| format!("cannot write {text} to {}", file.display()))?;
    }
    std::fs::write(group.join("cgroup.procs"), pid.to_string())
        .with_context(|| format!("cannot move process {pid} into {}", group.display()))
}

/// The lab and all that it starts in a CPU group of their own with a high weight, so that other work of a shared machine
/// disturbs as little as possible; among themselves they compete as before. Ended on drop.
#[derive(Debug)]
pub struct Apart {
    /// The lab's group before.
    back: PathBuf,
}

impl Apart {
    /// Begins it; `None` (and a line on stderr) where the controller cannot be used.
    pub fn begin(state: &mut State) -> Option<Self> {
        Self::try_begin(state).map_err(|why| eprintln!("lab: not in a CPU group of our own: {why:#}")).ok()
    }

    fn try_begin(state: &mut State) -> anyhow::Result<Self> {
        let place = find("cpu").map_err(|why| anyhow::anyhow!(why))?;
        let (Place::V1(root) | Place::V2(root)) = &place;
        let groups = Groups::parse(std::fs::read(OURS)?);
        let v1 = matches!(place, Place::V1(_));
        let own = below(&groups, if v1 { "cpu" } else { "" }).context("our own group is not known")?;
        let back = root.join(own).join("cgroup.procs");
        let group = root.join(format!("tailsight-lab-{}", std::process::id()));
        state.lasting_cgroup(&group)?;
        std::fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let weight = if v1 { ("cpu.shares", "102400") } else { ("cpu.weight", "10000") };
        std::fs::write(group.join(weight.0), weight.1).context("cannot set its weight")?;
        // With real-time group scheduling, a new group may not run real-time tasks until it is given some of the time. If
        // other groups have all of it, the scenarios that need it fail and say so; the others continue.
        let real_time = group.join("cpu.rt_runtime_us");
        if real_time.exists() && !["500000", "200000", "100000"].iter().any(|us| std::fs::write(&real_time, us).is_ok())
        {
            eprintln!("lab: no real time is left for our CPU group: other groups have it");
        }
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).context("cannot move into it")?;
        Ok(Self { back })
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // If it fails, the group stays, is noted, and is removed by the next start.
        let _ = std::fs::write(&self.back, std::process::id().to_string());
    }
}

/// Removes a group whose processes have ended (they may take a moment). One that is not there is no error.
pub fn remove(group: &Path) -> anyhow::Result<()> {
    let ours = group.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("tailsight-lab-"));
    if !group.exists() {
        return Ok(());
    }
    if !ours {
        bail!("it does not have a name of the lab's");
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match std::fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "33 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                          34 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                          32 31 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn choose(controller: &str, mounts: &str, groups: &str, read: impl Fn(&Path) -> String) -> Result<Place, String> {
        super::choose(controller, mounts.as_bytes(), &Groups::parse(groups), read)
    }

    #[test]
    fn groups_go_to_the_top_of_the_hierarchy_that_has_the_controller() {
        let groups = "2:cpu,cpuacct:/a/b\n1:cpuset:/\n0::/c\n";
        let none = |path: &Path| {
            assert_eq!(path, Path::new("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us"));
            "-1\n".to_owned()
        };
        assert_eq!(choose("cpu", MOUNTS, groups, none).unwrap(), Place::V1("/sys/fs/cgroup/cpu".into()));
        assert!(choose("cpu", MOUNTS, "0::/\n", |_| String::new()).is_err());
        let given = |path: &Path| if path.ends_with("c/memory.max") { "max\n" } else { "cpu memory\n" }.to_owned();
        let place = choose("memory", MOUNTS, groups, given).unwrap();
        assert_eq!(place, Place::V2("/sys/fs/cgroup/unified".into()));
        let why = choose("memory", MOUNTS, groups, |_| "pids".into()).unwrap_err();
        assert!(why.contains("memory"), "{why}");
        assert!(choose("memory", "", "", |_| String::new()).is_err());
    }

    #[test]
    fn a_limit_of_our_own_group_is_not_left() {
        let quota = |_: &Path| "50000\n".to_owned();
        let why = choose("cpu", MOUNTS, "2:cpu:/a\n", quota).unwrap_err();
        assert!(why.contains("limit of its own"), "{why}");
        let unlimited = |_: &Path| "9223372036854771712\n".to_owned();
        let mounts = "33 31 0:29 / /m rw - cgroup cgroup rw,memory\n";
        assert_eq!(choose("memory", mounts, "2:memory:/a\n", unlimited).unwrap(), Place::V1("/m".into()));
    }

    #[test]
    fn only_groups_of_ours_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        assert!(remove(&other).is_err() && other.exists());
        let ours = dir.path().join("tailsight-lab-1-2");
        std::fs::create_dir(&ours).unwrap();
        remove(&ours).unwrap();
        assert!(!ours.exists());
        remove(&ours).unwrap();
    }
}
