//! `tailsight record`: records a running server into a run directory.

use std::time::Duration;

use tailsight_diagnose::cohorts::focus::widened;
use tailsight_protocol::{Protocol, ProtocolChoice};
use tailsight_record::{Asked, HookChoice, Options, Payload, SampleRate, Selector, Traces, TxStamps, Until};
use tailsight_report::terminal::{protocols, record_summary};

use crate::cli::Record;
use crate::commands::intel_pt;
use crate::{Exit, pipeline, session, stop, terminal};

/// When a recording of no given length ends: when the focus of the default question can hold a verdict, and the slow messages name their
/// functions.
const UNTIL: Until = Until {
    messages: tailsight_diagnose::ENOUGH_MESSAGES,
    least: Duration::from_secs(2),
    most: Duration::from_secs(30),
    slow_samples: 200,
    few_slow_samples: 60,
    most_for_samples: Duration::from_secs(20),
    most_messages: 100_000,
};

/// Records and says what was recorded.
pub fn run(args: &Record) -> anyhow::Result<Exit> {
    match args.source.as_str() {
        "intel-pt" => intel_pt::record(args, |args, out| record(args, out, false)),
        // A command would be started in that session, and give way, too.
        _ if !args.target.command.is_empty() => record(args, &args.out, false),
        _ => record(args, &args.out, session::of_its_own()?),
    }
}

fn record(args: &Record, out: &std::path::Path, own_session: bool) -> anyhow::Result<Exit> {
    let selector = args.target.selector()?;
    let until_end = matches!(selector, Selector::Command(_));
    let slow_samples = if args.sample == SampleRate::Off { 0 } else { UNTIL.slow_samples };
    let until = (args.duration.is_none() && !until_end).then_some(Until { slow_samples, ..UNTIL });
    let options = Options {
        selector,
        duration: args.duration,
        until,
        out: out.into(),
        shared: args.into_shared,
        buffer_bytes: args.buffer,
        hooks: HookChoice { add: args.with_hook.clone(), remove: args.without_hook.clone(), empty: args.empty_hooks },
        payload: payload(args),
        tx_stamps: if args.nic_tx_stamps { TxStamps::Nic } else { TxStamps::Off },
        samples: args.sample,
        tasks: !args.no_tasks,
        confine: true,
        own_session,
        traces: Traces { asked: asked(args), most_per_second: args.function_limit },
        watches: false,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let stop = stop::of_recording();
    let mut progress = terminal::Recording::new(args.duration, until);
    let outcome = tailsight_record::record(&options, &stop, &mut |p| progress.show(p))?;
    if args.json {
        terminal::print_json(&outcome.meta)?;
    } else {
        let run = out.display();
        let mut text = record_summary(&outcome.meta, &terminal::style(), args.verbose);
        if let Some((until, messages)) = until.zip(outcome.few) {
            text += &few(&until, messages);
        }
        text += &format!("Next: tailsight diagnose {run}\n");
        terminal::print(&text)?;
    }
    if let Some(error) = outcome.error {
        say!("tailsight: {error}");
        return Ok(Exit::Failed);
    }
    if options.payload.is_some() {
        speaks_the_protocol(out)?;
    }
    Ok(Exit::Done)
}

/// That the recorded bytes hold requests of the protocol that was asked for: else every number of the run would be of something else. Says
/// what connections were taken to speak, where that was left to them.
///
/// # Errors
/// If none of its segments is a request, or the run cannot be read.
fn speaks_the_protocol(run: &std::path::Path) -> anyhow::Result<()> {
    let opened = crate::pipeline::open(run)?;
    let lifetimes = &opened.analysis.lifetimes;
    if let Some(told) = tailsight_diagnose::multiplexed::protocols(lifetimes) {
        say!("requests: {}", protocols(&told));
    } else if let Some(framing) =
        lifetimes.framing.as_ref().filter(|framing| framing.framed > 0 && framing.lost > framing.framed)
    {
        let messages = framing.framed + framing.lost;
        say!(
            "note: only {} of {messages} messages are requests of {}: is that what the server speaks?",
            framing.framed,
            framing.protocol
        );
    }
    Ok(tailsight_diagnose::multiplexed::check_protocol(lifetimes)?)
}

/// What is said of a recording that its longest time ended with too few messages; nothing where none was seen, which is a warning.
fn few(until: &Until, messages: u64) -> String {
    if messages == 0 {
        return String::new();
    }
    let (most, wanted) = (until.most.as_secs(), until.messages);
    let then = match widened(messages as usize, tailsight_diagnose::Options::default().focus) {
        Some(wide) => format!("diagnose explains {}", pipeline::slice(wide)),
        None => "with fewer, the intervals of diagnose are wider".to_owned(),
    };
    format!("Few:      about {messages} messages in {most} s, of {wanted} that were wanted: {then}\n")
}

/// Enough for commands with their keys and for most heads of HTTP/1 requests; Redis packs many replies into one segment. HTTP/2 packs requests,
/// too, and what follows a frame that was not kept is lost: of a hundred streams that a client begins at once 1,900 bytes are heads.
fn payload(args: &Record) -> Option<Payload> {
    let protocol = args.protocol?;
    let usual = match protocol {
        ProtocolChoice::Auto | ProtocolChoice::Named(Protocol::Http2) => Payload::MOST_BYTES,
        ProtocolChoice::Named(Protocol::Resp) => 960,
        ProtocolChoice::Named(Protocol::Http1) => 480,
        ProtocolChoice::Named(Protocol::Memcached) => 192,
    };
    let bytes = args.payload.unwrap_or(usual);
    Some(Payload { bytes, protocol: protocol.name().into(), reads_tls: !args.no_tls })
}

/// The functions to trace.
fn asked(args: &Record) -> Vec<Asked> {
    let kernel = args.kernel_function.iter().cloned().map(Asked::Kernel);
    args.uprobe.iter().chain(&args.usdt).cloned().chain(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording that ended because it had 2,500 messages said that it had about 2,417 of them: the last ones that were shown.
    #[test]
    fn few_messages_are_said_with_the_time_that_ended_the_recording() {
        let until = UNTIL;
        assert_eq!(until.few(2_500, Duration::from_secs(3)), None);
        let said = |messages, then: &str| {
            let text = format!("Few:      about {messages} messages in 30 s, of 2500 that were wanted: {then}\n");
            assert_eq!(few(&until, messages), text);
        };
        // A hundredth of them is enough.
        said(2_417, "with fewer, the intervals of diagnose are wider");
        said(1_952, "diagnose explains p98.9..p100");
        assert_eq!(few(&until, 0), "");
    }
}
