//! Power saving: idle states, frequency governor, turbo (Tales of the Tail §4.6).
//!
//! In: `/sys/devices/system/cpu/{cpuidle,cpufreq,intel_pstate}` and `/dev/cpu_dma_latency`. Out: settings.

use super::{Commands, Context, Setting, of_cpus};
use std::collections::BTreeMap;

const CPU: &str = "/sys/devices/system/cpu";

/// An idle state that takes longer than this to leave is one to avoid; C1 takes about 2 µs.
const LONGEST_EXIT_US: u64 = 10;

pub(super) fn check(cx: &Context<'_>) -> Vec<Setting> {
    vec![idle_states(cx), governor(cx), turbo(cx)]
}

fn idle_states(cx: &Context<'_>) -> Setting {
    const ID: &str = "idle_states";
    const TITLE: &str = "CPU idle states";
    let driver = cx.root.text(&format!("{CPU}/cpuidle/current_driver")).unwrap_or_else(|_| "none".into());
    let governor = cx
        .root
        .text(&format!("{CPU}/cpuidle/current_governor"))
        .or_else(|_| cx.root.text(&format!("{CPU}/cpuidle/current_governor_ro")));
    let name = match governor {
        Ok(g) if g != driver => format!("{driver} driver, {g} governor"),
        _ => format!("{driver} driver"),
    };
    let states = states(cx);
    let Some(deepest) = states.values().flatten().filter(|s| s.enabled).max_by_key(|s| s.exit_us) else {
        return if cx.machine.virtual_machine {
            Setting::unknown(
                ID,
                TITLE,
                name,
                "the guest shows no idle states: the hypervisor decides how deeply the core sleeps, which only the \
                 hypervisor's owner can change (idle states cost up to 200 µs in Tales of the Tail §4.6)",
            )
        } else {
            Setting::absent(ID, TITLE, "this kernel runs no cpuidle driver")
        };
    };
    let value = format!("{name}; deepest enabled {}, {} µs to leave", deepest.name, deepest.exit_us);
    if let Some(limit) = dma_latency(cx).filter(|l| *l < deepest.exit_us) {
        let why = format!("a process holds /dev/cpu_dma_latency at {limit} µs, so deeper states are not used");
        let value = format!("{value}; capped at {limit} µs");
        return if limit <= LONGEST_EXIT_US {
            Setting::good(ID, TITLE, value, why)
        } else {
            Setting::hurts(ID, TITLE, value, why)
        };
    }
    if deepest.exit_us <= LONGEST_EXIT_US {
        let why = if cx.machine.virtual_machine {
            "short exit latencies, as far as the guest can see; the hypervisor may still deschedule an idle CPU"
        } else {
            "every enabled state has a short exit latency"
        };
        return Setting::good(ID, TITLE, value, why);
    }
    let mut commands = Commands::default();
    for (index, per_cpu) in &states {
        let deep: Vec<(u32, String)> =
            per_cpu.iter().filter(|s| s.exit_us > LONGEST_EXIT_US).map(|s| (s.cpu, s.disable.clone())).collect();
        commands = commands.and(Commands::numbered(
            &format!("{CPU}/cpu{{}}/cpuidle/state{index}/disable"),
            &deep,
            per_cpu.len(),
            "1",
        ));
    }
    Setting::hurts(
        ID,
        TITLE,
        value,
        "a request that arrives at a core in an idle state waits until the core wakes: up to 200 µs at low load in \
         Tales of the Tail \
         §4.6, and one part of NIC delay in NSight §7.4. Costs power",
    )
    .with(commands)
}

struct IdleState {
    cpu: u32,
    name: String,
    exit_us: u64,
    disable: String,
    enabled: bool,
}

/// Every idle state of every online CPU, by its index.
fn states(cx: &Context<'_>) -> BTreeMap<u32, Vec<IdleState>> {
    let mut states: BTreeMap<u32, Vec<IdleState>> = BTreeMap::new();
    for cpu in cx.online() {
        let dir = format!("{CPU}/cpu{cpu}/cpuidle");
        for entry in cx.root.names(&dir) {
            let Some(index) = entry.strip_prefix("state").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let at = |file: &str| format!("{dir}/{entry}/{file}");
            let (Ok(exit_us), Ok(disable)) = (cx.root.number(&at("latency")), cx.root.text(&at("disable"))) else {
                continue;
            };
            states.entry(index).or_default().push(IdleState {
                cpu: *cpu,
                name: cx.root.text(&at("name")).unwrap_or(entry),
                exit_us,
                enabled: disable == "0",
                disable,
            });
        }
    }
    states
}

/// The strictest wake-up latency that a process asks for now, in µs; the default is 2,000 s, which is no limit.
fn dma_latency(cx: &Context<'_>) -> Option<u64> {
    let bytes = cx.root.bytes("/dev/cpu_dma_latency").ok()?;
    u64::try_from(i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()
}

fn governor(cx: &Context<'_>) -> Setting {
    const ID: &str = "frequency_governor";
    const TITLE: &str = "Frequency governor";
    let path = format!("{CPU}/cpu{{}}/cpufreq/scaling_governor");
    let values = cx.per_cpu(&path);
    if values.is_empty() {
        let who = if cx.machine.virtual_machine { "the hypervisor" } else { "the firmware" };
        return Setting::absent(ID, TITLE, format!("the kernel does not scale the frequency here: {who} decides"));
    }
    let slow: Vec<&(u32, String)> = values.iter().filter(|(_, g)| g != "performance").collect();
    let Some((_, first)) = slow.first() else {
        return Setting::good(ID, TITLE, "performance", "the frequency does not drop when the load does");
    };
    let mut names: Vec<&str> = slow.iter().map(|(_, g)| g.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let value = match names.len() {
        1 => format!("{first} on {}", of_cpus(slow.len(), values.len())),
        _ => format!("{} on {}", names.join(" and "), of_cpus(slow.len(), values.len())),
    };
    Setting::hurts(
        ID,
        TITLE,
        value,
        "a mostly idle core runs slowly when a burst arrives: servers that compute much per request (nginx) gained \
         from full speed in Tales of the Tail §4.6",
    )
    .with(Commands::numbered(&path, &values, values.len(), "performance"))
}

fn turbo(cx: &Context<'_>) -> Setting {
    const ID: &str = "turbo";
    const TITLE: &str = "Turbo";
    const WHY: &str = "faster, but the speed depends on the load of other cores; switch it off only to compare runs";
    let intel = format!("{CPU}/intel_pstate/no_turbo");
    let boost = format!("{CPU}/cpufreq/boost");
    let (path, on) = match (cx.root.text(&intel), cx.root.text(&boost)) {
        (Ok(v), _) => (intel, v == "0"),
        (_, Ok(v)) => (boost, v == "1"),
        (Err(e), Err(_)) => return Setting::unread(ID, TITLE, &e),
    };
    let (off_value, on_value) = if path.ends_with("no_turbo") { ("1", "0") } else { ("0", "1") };
    if on {
        Setting::good(ID, TITLE, "on", WHY).with(Commands::file(&path, off_value, on_value))
    } else {
        Setting::good(ID, TITLE, "off", "the top frequency does not vary; on would be faster on average")
            .with(Commands::file(&path, on_value, off_value))
    }
}
