//! Network: irqbalance, interrupt coalescing, where receive work runs, steering, busy polling.
//!
//! In: `/proc/*/comm`, `/proc/interrupts`, `/proc/irq`, `/sys/class/net`, `/proc/sys/net/core`, and the interfaces
//! already read. Out: settings. Papers: Tales of the Tail §4.4, NSight §7.1-7.3.

use super::{Commands, Context, Setting};
use crate::nic::Nic;
use crate::root::{cpu_list, cpu_mask, cpu_ranges};

/// The delay of a receive interrupt above which it costs more than it saves for small requests.
const LONGEST_WAIT_US: u32 = 10;

pub(super) fn check(cx: &Context<'_>) -> Vec<Setting> {
    let mut settings = vec![irqbalance(cx)];
    let before = settings.len();
    for nic in cx.live_nics() {
        settings.push(coalescing(nic));
        settings.extend(deferral(nic));
        settings.extend(receive_cores(cx, nic));
    }
    if settings.len() == before {
        let why = "no interface with a device behind it is up in this network namespace";
        settings.push(Setting::absent("interrupt_coalescing", "Interrupt coalescing", why));
    }
    settings.push(steering(cx));
    settings.push(busy_poll(cx));
    settings
}

fn irqbalance(cx: &Context<'_>) -> Setting {
    const ID: &str = "irqbalance";
    const TITLE: &str = "irqbalance";
    let is_it = |pid: &String| {
        pid.bytes().all(|b| b.is_ascii_digit())
            && cx.root.text(&format!("/proc/{pid}/comm")).is_ok_and(|c| c == "irqbalance")
    };
    if !cx.root.names("/proc").iter().any(is_it) {
        return Setting::good(ID, TITLE, "not running", "no daemon moves interrupts onto the server's cores");
    }
    let manager = if cx.root.exists("/run/systemd/system") { "systemctl" } else { "service" };
    let commands = match manager {
        "systemctl" => Commands::one("systemctl stop irqbalance", "systemctl start irqbalance"),
        _ => Commands::one("service irqbalance stop", "service irqbalance start"),
    };
    Setting::hurts(
        ID,
        TITLE,
        "running",
        "it spreads interrupts over all cores, so that packets of later requests interrupt earlier ones: 2-3 × the \
         ideal p99 in Tales of the Tail §4.4. Give interrupts a core of their own",
    )
    .with(commands)
}

fn coalescing(nic: &Nic) -> Setting {
    let id = format!("interrupt_coalescing:{}", nic.name);
    let title = format!("Interrupt coalescing, {}", nic.name);
    let Some(c) = nic.coalescing.known() else {
        let reason = nic.coalescing.reason().unwrap_or_default();
        return if reason == crate::nic::UNSUPPORTED {
            Setting::absent(&id, &title, "the driver has no interrupt coalescing to set")
        } else {
            Setting::unknown(&id, &title, "unreadable", reason)
        };
    };
    let adaptive = if c.adaptive_rx { "adaptive, " } else { "" };
    let value = format!("{adaptive}rx-usecs {}", c.rx_usecs);
    if !c.adaptive_rx && c.rx_usecs <= LONGEST_WAIT_US {
        return Setting::good(&id, &title, value, "the NIC interrupts soon after a packet");
    }
    let change = if c.adaptive_rx { "adaptive-rx off rx-usecs 0" } else { "rx-usecs 0" };
    let undo = match c.adaptive_rx {
        true => format!("adaptive-rx on rx-usecs {}", c.rx_usecs),
        false => format!("rx-usecs {}", c.rx_usecs),
    };
    Setting::hurts(
        &id,
        &title,
        value,
        "the NIC delays packets before it interrupts: NIC delay of up to 180 µs in NSight §3, and §7.3 switches it \
         off. \
         More interrupts cost throughput",
    )
    .with(Commands::one(format!("ethtool -C {} {change}", nic.name), format!("ethtool -C {} {undo}", nic.name)))
}

fn deferral(nic: &Nic) -> Option<Setting> {
    let ns = *nic.gro_flush_timeout_ns.known().filter(|ns| **ns > 0)?;
    let path = format!("/sys/class/net/{}/gro_flush_timeout", nic.name);
    Some(
        Setting::hurts(
            &format!("gro_flush_timeout:{}", nic.name),
            &format!("GRO flush timeout, {}", nic.name),
            format!("{ns} ns"),
            "the kernel delays received packets this long to merge more; useful only with busy polling",
        )
        .with(Commands::file(&path, "0", &ns.to_string())),
    )
}

/// The interrupts of an interface, by its own name or its device's in `/proc/interrupts`, and by `msi_irqs`.
fn interrupts(cx: &Context<'_>, nic: &Nic) -> Vec<u32> {
    let device = cx.root.link_name(&format!("/sys/class/net/{}/device", nic.name));
    let mut irqs: Vec<u32> = cx
        .root
        .names(&format!("/sys/class/net/{}/device/msi_irqs", nic.name))
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    let table = cx.root.text("/proc/interrupts").unwrap_or_default();
    for line in table.lines() {
        let Some((number, rest)) = line.trim_start().split_once(':') else {
            continue;
        };
        let Some(action) = rest.split_whitespace().last() else {
            continue;
        };
        let is = |name: &str| action == name || action.strip_prefix(name).is_some_and(|r| r.starts_with(['-', ':']));
        // virtio names its interrupts after the device: virtio2-input.0; its config interrupt carries no packets
        if (is(&nic.name) || device.as_deref().is_some_and(is)) && !action.ends_with("-config") {
            irqs.extend(number.parse::<u32>());
        }
    }
    irqs.sort_unstable();
    irqs.dedup();
    irqs
}

/// With a target: whether the interface's interrupts run on its cores.
fn receive_cores(cx: &Context<'_>, nic: &Nic) -> Option<Setting> {
    let target = cx.target?.cpus();
    if target.is_empty() || cx.online().len() < 2 {
        return None;
    }
    let id = format!("receive_cores:{}", nic.name);
    let title = format!("Receive cores, {}", nic.name);
    let irqs = interrupts(cx, nic);
    let affinity = |irq: &u32| {
        let at = |file: &str| cx.root.text(&format!("/proc/irq/{irq}/{file}")).ok().filter(|t| !t.is_empty());
        let allowed = at("smp_affinity_list")?;
        Some((*irq, allowed.clone(), cpu_list(&at("effective_affinity_list").unwrap_or(allowed))))
    };
    let now: Vec<(u32, String, Vec<u32>)> = irqs.iter().filter_map(affinity).collect();
    if now.is_empty() {
        return Some(Setting::unknown(&id, &title, "unreadable", "its interrupts are not in /proc/interrupts"));
    }
    let mut cores: Vec<u32> = now.iter().flat_map(|(_, _, c)| c.clone()).collect();
    cores.sort_unstable();
    cores.dedup();
    let count = match now.len() {
        1 => "1 interrupt".to_owned(),
        n => format!("{n} interrupts"),
    };
    let value = format!("{count} on CPUs {}", cpu_ranges(&cores));
    let shared: Vec<u32> = cores.iter().copied().filter(|c| target.contains(c)).collect();
    if shared.is_empty() {
        return Some(Setting::good(&id, &title, value, "receive work stays off the target's cores"));
    }
    // The first core that the target does not use; an unpinned target may use all, and is then pinned off core 0.
    let to = cx.online().iter().find(|c| !target.contains(c)).or(cx.online().first())?;
    let old: Vec<(u32, String)> = now.into_iter().map(|(irq, allowed, _)| (irq, allowed)).collect();
    Some(
        Setting::hurts(
            &id,
            &title,
            format!("{value}, which the target uses too"),
            "receive processing interrupts the target (receive processing (A) in NSight §7.1). A core for interrupts \
             alone brought p99 close to ideal in Tales of the Tail §4.4",
        )
        .with(Commands::numbered("/proc/irq/{}/smp_affinity_list", &old, old.len(), &to.to_string())),
    )
}

fn steering(cx: &Context<'_>) -> Setting {
    const ID: &str = "packet_steering";
    const TITLE: &str = "Packet steering (RPS, XPS)";
    let mut parts = Vec::new();
    let mut onto_target = Commands::default();
    for nic in cx.live_nics() {
        let dir = format!("/sys/class/net/{}/queues", nic.name);
        for queue in cx.root.names(&dir) {
            let (kind, file) = if queue.starts_with("rx-") { ("RPS", "rps_cpus") } else { ("XPS", "xps_cpus") };
            let path = format!("{dir}/{queue}/{file}");
            let Ok(mask) = cx.root.text(&path) else {
                continue;
            };
            let cpus = cpu_mask(&mask);
            if cpus.is_empty() {
                continue;
            }
            let part = format!("{kind} {} on CPUs {}", nic.name, cpu_ranges(&cpus));
            if !parts.contains(&part) {
                parts.push(part);
            }
            if kind == "RPS" && cx.target.is_some_and(|t| t.is_pinned(cx) && cpus.iter().any(|c| t.cpus().contains(c)))
            {
                onto_target = onto_target.and(Commands::file(&path, "0", &mask));
            }
        }
    }
    if !onto_target.change.is_empty() {
        let why = "RPS sends protocol work of received packets to the target's own cores (NSight §7.1)";
        return Setting::hurts(ID, TITLE, parts.join(", "), why).with(onto_target);
    }
    if parts.is_empty() {
        return Setting::good(ID, TITLE, "off", "protocol work stays on the core that took the interrupt");
    }
    const FEW: usize = 3;
    let more = parts.len().saturating_sub(FEW);
    parts.truncate(FEW);
    let value = if more == 0 { parts.join(", ") } else { format!("{} and {more} more", parts.join(", ")) };
    Setting::good(ID, TITLE, value, "set by an administrator or a daemon; -p PID checks it against the target's cores")
}

fn busy_poll(cx: &Context<'_>) -> Setting {
    const ID: &str = "busy_poll";
    const TITLE: &str = "Busy polling";
    let read = |name| cx.root.number::<u32>(&format!("/proc/sys/net/core/{name}"));
    match (read("busy_poll"), read("busy_read")) {
        (Ok(0), Ok(0)) => Setting::good(
            ID,
            TITLE,
            "off",
            "the default; polling trades a whole core for the interrupt and the wake-up",
        )
        .with(Commands::sysctl("net.core.busy_poll", "50", "0").and(Commands::sysctl(
            "net.core.busy_read",
            "50",
            "0",
        ))),
        (Ok(poll), Ok(read)) => {
            let value = format!("poll {poll} µs, read {read} µs");
            Setting::good(ID, TITLE, value, "a waiting thread polls the NIC before it sleeps")
                .with(Commands::sysctl("net.core.busy_poll", "0", &poll.to_string()))
                .with(Commands::sysctl("net.core.busy_read", "0", &read.to_string()))
        }
        (Err(e), _) | (_, Err(e)) => Setting::unread(ID, TITLE, &e),
    }
}
