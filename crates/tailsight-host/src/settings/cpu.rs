//! Cores: time stolen by the hypervisor, SMT, preemption, isolation, timers, watchdogs, mitigations.
//!
//! In: `/proc/stat`, `/proc/cmdline`, `/proc/sys/kernel`, `/sys/devices/system/cpu`, the scheduler's debugfs.
//! Out: settings.

use super::{Commands, Context, Rating, Setting};
use crate::kernel::bracketed;
use crate::proc::CpuTicks;
use crate::root::cpu_list;
use std::thread::sleep;
use std::time::Duration;

/// How long stolen time is measured on the live host. The counter ticks at 100 Hz a CPU.
const STEAL_WINDOW: Duration = Duration::from_millis(250);

/// The share of stolen time that is reported, in percent.
const STEAL_PERCENT: f64 = 0.5;

pub(super) fn check(cx: &Context<'_>) -> Vec<Setting> {
    vec![steal(cx), preemption(cx), smt(cx), nmi_watchdog(cx), isolation(cx), timer_migration(cx), mitigations(cx)]
}

fn steal(cx: &Context<'_>) -> Setting {
    const ID: &str = "steal";
    const TITLE: &str = "Time stolen by the hypervisor";
    if !cx.machine.virtual_machine {
        return Setting::absent(ID, TITLE, "not a virtual machine");
    }
    // (stolen, total) since boot
    let ticks = |stat: String| CpuTicks::parse(&stat, None).map(|ticks| (ticks.stolen, ticks.all()));
    let read = || cx.root.text("/proc/stat").map(ticks);
    let boot = match read() {
        Ok(Some(t)) => t,
        Ok(None) => {
            return Setting::unknown(ID, TITLE, "unreadable", "/proc/stat has no steal column");
        }
        Err(e) => return Setting::unread(ID, TITLE, &e),
    };
    let since_boot = percent(boot);
    let mut value = format!("{since_boot:.2} % since boot");
    let mut worst = since_boot;
    if cx.root.is_live() {
        sleep(STEAL_WINDOW);
        if let Ok(Some(now)) = read() {
            let recent = percent((now.0.saturating_sub(boot.0), now.1.saturating_sub(boot.1)));
            value = format!("{recent:.1} % now, {value}");
            worst = worst.max(recent);
        }
    }
    if worst < STEAL_PERCENT {
        return Setting::good(ID, TITLE, value, "the hypervisor gives this machine the CPU time that it needs");
    }
    let mut s = Setting::hurts(
        ID,
        TITLE,
        value,
        "the hypervisor runs other guests on these cores while requests wait; nothing inside this machine can change \
         that",
    );
    s.change.push("# use an instance type with dedicated cores, or another host".into());
    s
}

#[allow(clippy::cast_precision_loss)] // ticks of CPU time stay far below 2^52
fn percent((part, whole): (u64, u64)) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn preemption(cx: &Context<'_>) -> Setting {
    const ID: &str = "preemption";
    const TITLE: &str = "Kernel preemption";
    const DEBUG: &str = "/sys/kernel/debug/sched/preempt";
    // It marks the model in use with round brackets: "none voluntary (full)".
    let debug = cx.root.text(DEBUG).ok().map(|t| t.replace('(', "[").replace(')', "]"));
    let Some(model) = debug.as_deref().map(|t| bracketed(t).to_owned()).or_else(|| preemption_model(cx)) else {
        return Setting::unknown(
            ID,
            TITLE,
            "unreadable",
            "neither debugfs nor the kernel's build options can be read: mount -t debugfs none /sys/kernel/debug",
        );
    };
    match model.as_str() {
        "full" | "lazy" | "rt" => {
            Setting::good(ID, TITLE, model, "a woken thread can preempt another one inside the kernel")
        }
        "none" | "voluntary" => {
            let mut s = Setting::hurts(
                ID,
                TITLE,
                model.clone(),
                "a woken server thread waits until the running task leaves the kernel, even at real-time \
                 priority (Tales of the Tail §4.1)",
            );
            if debug.is_some() {
                s = s.with(Commands::file(DEBUG, "full", &model));
            } else if cx.kernel.option("PREEMPT_DYNAMIC") == Some(true) {
                s.change.push("# add preempt=full to the kernel command line and reboot".into());
                s.undo.push(match asked(cx) {
                    Some(old) => format!("# put preempt={old} back and reboot"),
                    None => "# take preempt=full away again and reboot".into(),
                });
            } else {
                s.change.push("# use a kernel built with CONFIG_PREEMPT or CONFIG_PREEMPT_DYNAMIC".into());
            }
            s
        }
        _ => Setting::unknown(ID, TITLE, model, "this kernel reports an unknown preemption model"),
    }
}

/// The model that the kernel command line asks for; the last one counts.
fn asked(cx: &Context<'_>) -> Option<String> {
    let cmdline = cx.root.text("/proc/cmdline").ok()?;
    cmdline.split_whitespace().rev().find_map(|w| w.strip_prefix("preempt=")).map(str::to_owned)
}

/// Where debugfs cannot be read, the command line decides on a dynamic kernel, and the build option on others.
fn preemption_model(cx: &Context<'_>) -> Option<String> {
    let on = |option| cx.kernel.option(option) == Some(true);
    if let Some(model) = asked(cx).filter(|_| on("PREEMPT_DYNAMIC")) {
        return Some(model);
    }
    let built = [
        ("PREEMPT_RT", "rt"),
        ("PREEMPT_LAZY", "lazy"),
        ("PREEMPT", "full"),
        ("PREEMPT_VOLUNTARY", "voluntary"),
        ("PREEMPT_NONE", "none"),
    ];
    built.iter().find(|(option, _)| on(option)).map(|(_, model)| (*model).to_owned())
}

fn smt(cx: &Context<'_>) -> Setting {
    const ID: &str = "smt";
    const TITLE: &str = "SMT (hyper-threading)";
    const CONTROL: &str = "/sys/devices/system/cpu/smt/control";
    match cx.root.text("/sys/devices/system/cpu/smt/active") {
        Ok(v) if v == "0" => Setting::good(ID, TITLE, "off", "no other thread shares the core"),
        Ok(_) => {
            let control = cx.root.text(CONTROL).unwrap_or_else(|_| "on".into());
            let commands = if control == "on" { Commands::file(CONTROL, "off", "on") } else { Commands::default() };
            Setting::hurts(
                ID,
                TITLE,
                "on",
                "a task on the sibling CPU shares the core with the server and slows it. Switching SMT off halves the \
                 CPUs; keeping the siblings of the server's CPUs idle is as good",
            )
            .with(commands)
        }
        Err(e) => Setting::unread(ID, TITLE, &e),
    }
}

fn nmi_watchdog(cx: &Context<'_>) -> Setting {
    const ID: &str = "nmi_watchdog";
    const TITLE: &str = "NMI watchdog";
    match cx.root.text("/proc/sys/kernel/nmi_watchdog") {
        Ok(v) if v == "0" => Setting::good(ID, TITLE, "off", "no watchdog interrupt, and no hardware counter used"),
        Ok(v) => Setting::hurts(
            ID,
            TITLE,
            "on",
            "it interrupts every busy core every few seconds and uses a hardware counter; it also detects hard \
             lock-ups, so keep it where those matter more",
        )
        .with(Commands::sysctl("kernel.nmi_watchdog", "0", &v)),
        Err(e) => Setting::unread(ID, TITLE, &e),
    }
}

/// CPUs that the general scheduler leaves alone.
pub(super) fn isolated(cx: &Context<'_>) -> Vec<u32> {
    cpu_list(&cx.root.text("/sys/devices/system/cpu/isolated").unwrap_or_default())
}

fn isolation(cx: &Context<'_>) -> Setting {
    const ID: &str = "isolation";
    const TITLE: &str = "Isolated cores";
    let part = |name: &str, path: &str| {
        let list = cx.root.text(path).ok().filter(|t| !t.is_empty() && t != "(null)")?;
        Some(format!("{name} {list}"))
    };
    let parts: Vec<String> =
        [part("isolcpus", "/sys/devices/system/cpu/isolated"), part("nohz_full", "/sys/devices/system/cpu/nohz_full")]
            .into_iter()
            .flatten()
            .collect();
    if parts.is_empty() {
        return Setting::absent(
            ID,
            TITLE,
            "no core is kept free of other tasks by isolcpus= or nohz_full=; pinning serves most servers as well",
        );
    }
    let why =
        "no other tasks are scheduled on these cores, so run the server there (dedicated core, Tales of the Tail §4.1)";
    Setting::good(ID, TITLE, parts.join(", "), why)
}

fn timer_migration(cx: &Context<'_>) -> Setting {
    const ID: &str = "timer_migration";
    const TITLE: &str = "Timer migration";
    const WHY: &str = "timers of idle cores run on busy ones when it is on; that matters only beside isolated cores";
    match cx.root.text("/proc/sys/kernel/timer_migration") {
        Ok(v) => {
            let (now, other) = if v == "0" { ("off", "1") } else { ("on", "0") };
            Setting::good(ID, TITLE, now, WHY).with(Commands::sysctl("kernel.timer_migration", other, &v))
        }
        Err(e) => Setting::unread(ID, TITLE, &e),
    }
}

fn mitigations(cx: &Context<'_>) -> Setting {
    const ID: &str = "mitigations";
    const TITLE: &str = "CPU mitigations";
    const DIR: &str = "/sys/devices/system/cpu/vulnerabilities";
    let names = cx.root.names(DIR);
    if names.is_empty() {
        return Setting::absent(ID, TITLE, format!("{DIR} is empty or missing"));
    }
    let active =
        names.iter().filter(|n| cx.root.text(&format!("{DIR}/{n}")).is_ok_and(|t| t.contains("Mitigation"))).count();
    let why = "they lengthen every system call and interrupt, typical and slow ones alike; keep them on";
    Setting::new(ID, TITLE, Rating::Good, format!("{active} active"), why)
}
