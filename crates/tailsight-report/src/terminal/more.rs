//! What `diagnose --more` adds: pervasive causes, queues, cores (NSight §7.4).
//!
//! In: a [`Diagnosis`] with its `more`. Out: three tables as text; nothing when it was not asked for.

use tailsight_diagnose::Diagnosis;
use tailsight_diagnose::model::{CoreContexts, More};

use super::text::{clean, cut, paint};
use super::{Style, role_name, units};

/// The three tables.
pub fn more(d: &Diagnosis, style: &Style) -> String {
    let Some(more) = &d.more else { return String::new() };
    let mut out = String::new();
    let mut section = |title: &str, rows: Vec<String>| {
        if !rows.is_empty() {
            out += &format!("\n{}\n", paint(style, "1", title));
            for row in rows {
                out += &format!("  {}\n", cut(row.trim_end(), style.columns() - 2));
            }
        }
    };
    section("Most pervasive causes by percentile (messages hit):", pervasive(d, more));
    section("Queued ahead of a message in focus (depth, usually; time more than usual):", queue(more));
    let [focus, reference] = &more.cores;
    section("What ran on each core during the messages in focus:", cores(focus));
    section("What ran on each core during the reference messages:", cores(reference));
    out
}

fn pervasive(d: &Diagnosis, more: &More) -> Vec<String> {
    let percentile = |q: f64| format!("p{}", (q * 1e6).round() / 1e4);
    let row = |p: &tailsight_diagnose::model::Pervasive| {
        let names: Vec<String> = p
            .causes
            .iter()
            .filter_map(|(rank, hit, _)| {
                let cause = d.causes.get((*rank as usize).checked_sub(1)?)?;
                Some(format!("{} {}", clean(&cause.name), units::percent(*hit)))
            })
            .take(3)
            .collect();
        let slice = format!("{}..{}", percentile(p.from), percentile(p.to));
        format!("{slice:<12} {:>8}  {}", units::duration(p.mean_ns), names.join(", "))
    };
    more.pervasive.iter().map(row).collect()
}

fn queue(more: &More) -> Vec<String> {
    let row = |q: &tailsight_diagnose::model::Queue| {
        format!(
            "{:<16} {:<16} {:>7.1} {:>7.1}  {:>9}  in {}",
            q.function,
            role_name(q.role),
            q.depth[0],
            q.depth[1],
            units::signed_duration(q.mean_ns[0] - q.mean_ns[1]),
            units::counted(q.messages, "message")
        )
    };
    more.queue.iter().map(row).collect()
}

fn cores(cores: &[CoreContexts]) -> Vec<String> {
    let row = |core: &CoreContexts| {
        let name = core.cpu.map_or("no core".to_owned(), |cpu| format!("core {cpu}"));
        let contexts: Vec<String> = core
            .contexts
            .iter()
            .take(4)
            .map(|(name, part)| format!("{} {}", clean(name), units::percent(*part)))
            .collect();
        format!("{name:<8} {:>7} of the time: {}", units::percent(core.share), contexts.join(", "))
    };
    cores.iter().map(row).collect()
}
