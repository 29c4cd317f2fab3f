//! What the commands have besides their options: examples, exit codes, files, variables of the environment.
//!
//! A line of an example is 78 columns at most (`--help` shows it indented by two); a test holds it.

/// What a page says of a command besides its options.
#[derive(Debug)]
pub struct Page {
    /// The command's name; `tailsight` for the program itself.
    pub name: &'static str,
    /// The forms of use, one a line, without the command's name.
    pub usage: &'static [&'static str],
    /// A paragraph each.
    pub notes: &'static [&'static str],
    /// Command lines, each with what it does (may be empty).
    pub examples: &'static [Example],
    /// Exit codes and what each means.
    pub exits: &'static [(u8, &'static str)],
    /// Files that it reads or writes.
    pub files: &'static [(&'static str, &'static str)],
    /// Variables of the environment that it reads.
    pub environment: &'static [(&'static str, &'static str)],
}

/// What it does, and the command line; a line that ends in `\` goes on in the next.
pub type Example = (&'static str, &'static str);

/// The commands that have a page.
pub fn names() -> Vec<&'static str> {
    PAGES.iter().map(|page| page.name).collect()
}

const DONE: (u8, &str) = (0, "done");
const FAILED: (u8, &str) = (1, "failed");
const USAGE: (u8, &str) = (2, "wrong usage");
const NOT_ENOUGH: (u8, &str) = (3, "measured, but the evidence is not enough (N/A)");

const COLOR: (&str, &str) = ("NO_COLOR", "set: no colours");
const COLUMNS: (&str, &str) = ("COLUMNS", "the width of tables [default: the terminal's, or 100]");

const RUN: (&str, &str) = ("RUN/", "the run directory; docs/schema.md describes its files");

/// A page a command, in the order of `tailsight --help`.
pub const PAGES: &[Page] = &[
    Page {
        name: "tailsight",
        usage: &["<COMMAND> [OPTIONS]"],
        notes: &["Results go to standard output, everything else to standard error. \
            `tailsight help COMMAND` prints the options of a command. Pages named docs/NAME.md are in \
            /usr/share/doc/tailsight, or in the source."],
        examples: &[
            ("what this host can record", "tailsight doctor"),
            ("record a server until there is enough", "sudo tailsight record --comm memcached"),
            ("name the causes of its slow messages", "sudo tailsight diagnose tailsight-run"),
        ],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH, (4, "measured, and an objective or a comparison is not met")],
        files: &[],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "doctor",
        usage: &["[OPTIONS]"],
        notes: &[],
        examples: &[
            ("", "tailsight doctor"),
            ("also the settings of one process", "tailsight doctor -p $(pgrep -o memcached)"),
            ("", "tailsight doctor --json | jq .hooks"),
        ],
        exits: &[(0, "this host can record"), (1, "it cannot, and the output says why"), USAGE],
        files: &[],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "demo",
        usage: &["[OPTIONS]"],
        notes: &[
            "memcached and nginx share a core in a network namespace of their own; an open-loop load runs on both \
            from another namespace and core. DIR/run and DIR/report.html stay; everything else is removed, also on Ctrl-C.",
        ],
        examples: &[("", "sudo tailsight demo"), ("", "sudo tailsight demo -o /tmp/demo -d 5s")],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH],
        files: &[("DIR/run/", "the run"), ("DIR/report.html", "its report")],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "record",
        usage: &[
            "[OPTIONS] --pid PID",
            "[OPTIONS] --comm NAME",
            "[OPTIONS] --cgroup PATH",
            "[OPTIONS] --port PORT",
            "[OPTIONS] --container NAME",
            "[OPTIONS] -- <CMD>...",
        ],
        notes: &["Needs root or the capabilities that docs/privileges.md lists."],
        examples: &[
            ("", "sudo tailsight record --comm nginx -d 5s -o slow-run"),
            ("", "sudo tailsight record -p 1234"),
            ("requests of redis instead of segments", "sudo tailsight record --port 6379 --protocol resp"),
            ("", "sudo tailsight record --cgroup system.slice/myapp.service"),
            ("a container of Docker, Podman or containerd", "sudo tailsight record --container web"),
            ("", "sudo tailsight record -- ./server --port 8080"),
        ],
        exits: &[DONE, (1, "failed (a run that has data is kept; run.json says how it ended)"), USAGE],
        files: &[RUN, ("/sys/kernel/btf/vmlinux", "the kernel's types, which the hooks are fitted to")],
        environment: &[COLOR, COLUMNS, ("TAILSIGHT_LIBBPF_LOG", "set: what libbpf logs goes to standard error")],
    },
    Page {
        name: "watch",
        usage: &[
            "[OPTIONS] --pid PID",
            "[OPTIONS] --comm NAME",
            "[OPTIONS] --cgroup PATH",
            "[OPTIONS] --port PORT",
            "[OPTIONS] --container NAME",
            "[OPTIONS] -- <CMD>...",
            "--status [-o DIR]",
        ],
        notes: &[
            "Needs root or the capabilities that docs/privileges.md lists. docs/watch.md says what is counted, and what a capture holds.",
        ],
        examples: &[
            ("", "sudo tailsight watch --comm nginx --when 'total > 20ms'"),
            (
                "the slowest message in a thousand, every ten minutes",
                "sudo tailsight watch -p 1234 --when p99.9 --every 10m",
            ),
            ("", "sudo tailsight watch --port 6379 --when 'receive > 1ms, service > 5ms'"),
            ("with metrics for Prometheus", "sudo tailsight watch --comm nginx --listen 127.0.0.1:9464"),
            ("what was captured", "tailsight watch --status"),
        ],
        exits: &[(0, "it ended: by a signal, by an option, or because the target is gone"), FAILED, USAGE],
        files: &[
            ("DIR/capture-TIME/", "a run each, with its diagnosis.json; the oldest are deleted to make room"),
            ("DIR/captures.jsonl", "what each capture showed, a line each, for ever"),
        ],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "diagnose",
        usage: &["[OPTIONS] <RUN>"],
        notes: &[],
        examples: &[
            ("", "tailsight diagnose tailsight-run"),
            ("another slice, another leg", "tailsight diagnose tailsight-run --focus p99.9..p100 --leg receive"),
            ("what changed since another run", "tailsight diagnose after --focus p20..p30 --against before --more"),
            (
                "what is hidden behind known causes",
                "tailsight diagnose tailsight-run --without steal \\\n    --without interference:rustc",
            ),
            ("and the load that an objective allows", "tailsight diagnose tailsight-run --slo 'p99<1ms'"),
            (
                "exit 4 if a cause takes 1 ms more than before",
                "tailsight diagnose after --against before --fail-above 1ms",
            ),
            ("", "tailsight diagnose tailsight-run --json | jq '.causes[0]'"),
        ],
        exits: &[
            DONE,
            FAILED,
            USAGE,
            NOT_ENOUGH,
            (4, "with `--fail-above`: a row is above it, and standard error says which"),
        ],
        files: &[RUN],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "report",
        usage: &["[OPTIONS] <RUN>", "[OPTIONS] <FILE.parquet>..."],
        notes: &[
            "Of files that `tailsight load -o FILE.parquet` wrote, the page has every measurement's distribution and latency \
            over time, one over the other; the options of a diagnosis do not apply to them.",
        ],
        examples: &[
            ("", "tailsight report tailsight-run"),
            ("", "tailsight report tailsight-run -o why.html --leg service"),
            ("three loads on one page", "tailsight report 10k.parquet 20k.parquet 40k.parquet -o loads.html"),
        ],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH],
        files: &[RUN, ("RUN/report.html", "the page, unless --out names another file")],
        environment: &[],
    },
    Page {
        name: "view",
        usage: &["[OPTIONS] <RUN>"],
        notes: &[
            "Prints an address and serves the page there until Ctrl-C, to this host only. The address holds a random token: \
            whoever does not have it gets nothing. From another host: ssh -L PORT:127.0.0.1:PORT HOST, with the --port of \
            your choice.",
        ],
        examples: &[("", "tailsight view tailsight-run"), ("", "tailsight view after --against before --port 7777")],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH],
        files: &[RUN],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "show",
        usage: &["[OPTIONS] <RUN> <ID>"],
        notes: &["Ids are those of `diagnose` (evidence, the slowest messages) and of the report page."],
        examples: &[
            ("", "tailsight show tailsight-run 20761"),
            ("", "tailsight show tailsight-run 20761 --leg receive --json | jq '.rows[0]'"),
        ],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH],
        files: &[RUN],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "fix",
        usage: &["[OPTIONS] <RUN> [N]", "--undo [--force]", "--status [--json]"],
        notes: &[
            "Without N the fixes of a run are listed and nothing is changed. A change is shown with the value that it \
            replaces, and made after you confirm it. Every change is kept in a state file until it is put back.",
        ],
        examples: &[
            ("list the fixes", "tailsight fix tailsight-run"),
            ("make the first one", "sudo tailsight fix tailsight-run 1"),
            ("put everything back", "sudo tailsight fix --undo"),
            ("the same as shell commands, nothing is changed", "tailsight fix tailsight-run 1 --shell"),
            ("", "tailsight fix tailsight-run --json"),
        ],
        exits: &[DONE, (1, "failed, or not confirmed"), USAGE, NOT_ENOUGH],
        files: &[
            ("/var/lib/tailsight/fixes.toml", "root's state file"),
            ("~/.local/state/tailsight/fixes.toml", "that of another user"),
        ],
        environment: &[
            ("TAILSIGHT_STATE", "the folder of the state file"),
            ("XDG_STATE_HOME", "for users other than root: it goes to tailsight/ in it"),
            COLOR,
            COLUMNS,
        ],
    },
    Page {
        name: "tune",
        usage: &[
            "--pid PID --load TARGET --rate RATE [OPTIONS]",
            "--comm NAME --load TARGET --rate RATE [OPTIONS]",
            "--port PORT --observe [OPTIONS]",
        ],
        notes: &[
            "Records and diagnoses the server, applies the fix with the largest predicted gain, measures with and without it in \
             turn, keeps it if its whole interval is below zero, else undoes it; and so on. docs/tune.md describes the method.",
            "Without --yes it asks before each fix; where nobody can be asked it shows what it would try and changes nothing. \
             Ctrl-C undoes everything. What a killed tune leaves behind, tailsight fix --undo undoes. Needs root.",
        ],
        examples: &[
            (
                "ask before each fix",
                "sudo tailsight tune --comm memcached --rate 20k \\\n    --load 'memcached://localhost --connections 32'",
            ),
            (
                "ten minutes, no questions, no other program is touched",
                "sudo tailsight tune -p 1234 --load http://localhost:8080/ --rate 2k \\\n    \
                 --objective 'p99.9 min' --budget 10m --only cpu,irq --yes",
            ),
            (
                "until an objective is met, with the traffic that the server has",
                "sudo tailsight tune --port 6379 --observe --objective 'p99 < 2ms'",
            ),
            ("what would be tried", "sudo tailsight tune --port 6379 --observe --json | jq .left"),
            ("undo what was kept", "sudo tailsight fix --undo"),
        ],
        exits: &[
            (0, "done, also where no fix was kept"),
            (1, "failed, and everything was undone"),
            USAGE,
            (3, "interrupted, and everything was undone; or no causes can be said"),
        ],
        files: &[
            ("DIR/diagnosis-N/", "the recordings, a run each"),
            ("DIR/window/", "with --observe: the recording of the last window"),
            ("/var/lib/tailsight/fixes.toml", "the state file of root, as of tailsight fix"),
        ],
        environment: &[("TAILSIGHT_STATE", "the folder of the state file"), COLOR, COLUMNS],
    },
    Page {
        name: "export",
        usage: &["[OPTIONS] <RUN>"],
        notes: &[
            "parquet: messages.parquet and lifetimes.parquet, tables of all messages, and sent.parquet, what the server sent \
            by itself, if anything; turns.parquet and waits.parquet, when each thread worked for which messages, and what each \
            of its sleeps was for. docs/lifetimes.md describes every column.",
            "collapsed: focus.collapsed and reference.collapsed, call stacks with ns of a mean message, for flame graphs and \
            speedscope. pprof: stacks.pb.gz, the same for pprof, with a value of the focus and one of the reference.",
            "firefox-profiler: profile.json, the samples of the server's threads, messages as markers, for profiler.firefox.com. \
            perfetto: trace.pftrace, the slow messages, a thousand others, cores and threads, for ui.perfetto.dev.",
            "otlp: traces.jsonl, the slow messages as spans of OpenTelemetry, for a collector's otlpjsonfile receiver; \
            with --to they are sent to a collector instead. csv: causes.csv, the causes of the diagnosis.",
        ],
        examples: &[
            ("", "tailsight export tailsight-run"),
            ("", "tailsight export tailsight-run --format perfetto \\\n    --focus p99.9..p100"),
            ("", "tailsight export tailsight-run --format otlp \\\n    --to http://127.0.0.1:4318"),
            (
                "",
                "duckdb -c \"select owner, sum(ns) from \\\n    'tailsight-run/lifetimes.parquet' group by 1 order by 2 desc\"",
            ),
        ],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH],
        files: &[RUN],
        environment: &[],
    },
    Page {
        name: "import",
        usage: &["[OPTIONS] <PERF.DATA>"],
        notes: &[
            "The recording is made by perf record --kcore -a -e intel_pt/cyc/ -o recording.dir -- sleep 2 on a machine with \
            Intel PT. No such machine has run this program yet: docs/intel-pt.md says what is proved and how.",
        ],
        examples: &[
            ("", "tailsight import perf.data -o functions"),
            ("", "tailsight import perf.data --root ./files-of-that-machine"),
            ("", "tailsight import recording.dir --with tailsight-run \\\n    -o with-functions"),
        ],
        exits: &[DONE, FAILED, USAGE, NOT_ENOUGH],
        files: &[("tailsight-run/", "the run that is written, unless --out names another")],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "symbolise",
        usage: &["[OPTIONS] <RUN>"],
        notes: &[
            "A recording names functions by the files that the server has mapped. Of a stripped program it keeps the build id and where \
             each function begins; with the debug file, or the program as it was built, these get their names here, on any machine. \
             Source lines and functions that the compiler put into others are added where they are missing.",
        ],
        examples: &[
            ("with the debug packages of this machine", "tailsight symbolise tailsight-run"),
            ("", "tailsight symbolise tailsight-run -d ~/builds/server-1.4"),
        ],
        exits: &[DONE, FAILED, USAGE],
        files: &[RUN, ("RUN/sample_frames.arrow", "the names, replaced with the tables beside it")],
        environment: &[],
    },
    Page {
        name: "ideal",
        usage: &["[OPTIONS] <RUN>", "[OPTIONS] --model MODEL", "[OPTIONS] --calibrate TARGET"],
        notes: &[
            "A model is ARRIVALS/SERVICE/WORKERS UTILISATION in Kendall's notation. Arrivals: M (Poisson), D (equal gaps), \
             lognormal:SIGMA, pareto:SHAPE, gpareto:SHAPE, mmpp:RATIO,SHARE,BURST or recorded. Service times: D (all alike), \
             M (exponential), lognormal:SIGMA, bimodal:RATIO,SHARE or empirical (with --service-times). Without --service, \
             times are in mean service times. How to read the result: docs/ideal.md.",
        ],
        examples: &[
            ("a recorded server beside its ideal", "tailsight ideal tailsight-run"),
            ("and the load that it could take", "tailsight ideal tailsight-run --slo 'p99<1ms' --plot ideal.svg"),
            (
                "measure the service time at saturation, and use it",
                "tailsight ideal --calibrate memcached://localhost \\\n    --pid $(pgrep -o memcached) -o peak.json\n\
                 tailsight ideal tailsight-run --calibration peak.json",
            ),
            ("queueing models", "tailsight ideal --model 'M/D/4 80%'"),
            ("", "tailsight ideal --model 'M/M/1 50%' --service 50us --json | jq .latency_ns"),
            ("", "tailsight ideal --model 'M/bimodal:10,0.1/8 90%' \\\n    --discipline random-worker"),
            ("", "tailsight ideal --model 'recorded/D/2 70%' --arrivals times.txt \\\n    --service 8us"),
            ("", "tailsight ideal --model 'M/empirical/4 80%' --service-times costs.txt"),
        ],
        exits: &[
            DONE,
            FAILED,
            (2, "wrong usage (a utilisation of 100 % or more is unstable)"),
            (3, "N/A: too few messages for the percentiles, a run without replies, a server that was never saturated"),
        ],
        files: &[RUN],
        environment: &[COLOR, COLUMNS],
    },
    Page {
        name: "load",
        usage: &[
            "<TARGET> --rate RATE [OPTIONS]",
            "<TARGET> --rate-profile PROFILE [OPTIONS]",
            "<TARGET> --utilisation PART --calibration FILE [OPTIONS]",
            "<TARGET> --closed N [OPTIONS]",
            "<TARGET> --replay FILE [OPTIONS]",
        ],
        notes: &["docs/load.md describes the targets and the method, docs/measurement.md the statistics."],
        examples: &[
            ("a p99 known within 10 us", "tailsight load memcached://localhost --rate 20k --ci p99:10us@95"),
            (
                "keep the samples, and a page",
                "tailsight load redis://localhost --rate 50k --workload usr \\\n    -o run.parquet --html run.html",
            ),
            (
                "exit 4 when it is slower than an earlier run",
                "tailsight load http://localhost:8080/ --rate 2k --against base.parquet",
            ),
            (
                "exit 4 when a build is slower than the other, both measured in turn",
                "tailsight load http://new:8080/ --rate 2k --against http://old:8080/",
            ),
            ("exit 4 when an objective is missed", "tailsight load redis://localhost --rate 20k --slo 'p99<500us'"),
            (
                "a request as users send it",
                "tailsight load https://shop/orders --rate 500 -d @order.json \\\n    \
                 -H 'Content-Type: application/json' --good-statuses 2xx,409",
            ),
            ("a closed loop", "tailsight load memcached://localhost --closed 1"),
            (
                "from two other machines",
                "tailsight load memcached://cache1 --rate 200k --agent-token-file token \\\n    \
                 --agent 10.0.0.7:7411#AB... --agent 10.0.0.8:7411#CD...",
            ),
        ],
        exits: &[
            (0, "a number; with --slo and without --ci: the objective is met"),
            FAILED,
            (2, "contradictory options"),
            (3, "N/A; the objective is open"),
            (4, "worse, or the objective is missed"),
        ],
        files: &[("FILE.parquet", "with --out: every sample; docs/load.md describes the columns")],
        environment: &[
            ("TAILSIGHT_AGENT_TOKEN", "the agents' token, without --agent-token-file"),
            ("SSL_CERT_FILE", "certificates to trust, without --ca"),
            COLOR,
            COLUMNS,
        ],
    },
    Page {
        name: "sweep",
        usage: &["<TARGET> [OPTIONS]"],
        notes: &[],
        examples: &[
            ("", "tailsight sweep memcached://localhost:11211 --from 5k"),
            ("", "tailsight sweep redis://localhost --rates 10k,20k,40k,80k --json"),
            (
                "the highest rate that meets an objective",
                "tailsight sweep redis://localhost --slo 'p99<500us' --from 10k",
            ),
        ],
        exits: &[
            DONE,
            FAILED,
            (2, "contradictory options"),
            (3, "N/A at every rate"),
            (4, "no rate meets the objective"),
        ],
        files: &[("DIR/", "with --out: the samples, a file a rate")],
        environment: &[
            ("TAILSIGHT_AGENT_TOKEN", "the agents' token, without --agent-token-file"),
            ("SSL_CERT_FILE", "certificates to trust, without --ca"),
            COLOR,
            COLUMNS,
        ],
    },
    Page {
        name: "serve",
        usage: &["[OPTIONS]"],
        notes: &[
            "Request n, which came at A(n), leaves at D(n) = max(D(n-1), A(n)) + S(n): one server, in the order of arrival. With \
             Poisson arrivals that is M/G/1. The server looks at its connections all the time, so that it sees arrivals when \
             they happen and its own system calls are part of the service times.",
            "What a load generator measures is that queue's latency and the way through the kernel, some tens of \
             microseconds on loopback (docs/load.md, docs/results/client.md).",
        ],
        examples: &[
            ("a queue with fixed service times", "tailsight serve --service fixed:200us"),
            ("and in another shell its latency at half load", "tailsight load memcached://127.0.0.1:7000 --rate 2500"),
            ("and what that should be", "tailsight ideal --model 'M/D/1 50%' --service 200us"),
            ("for other load generators", "tailsight serve --protocol http1 --service exponential:1ms --port 8080"),
        ],
        exits: &[(0, "it was ended"), FAILED, USAGE],
        files: &[],
        environment: &[],
    },
    Page {
        name: "agent",
        usage: &["[OPTIONS]"],
        notes: &[
            "Prints one line on standard output, HOST:PORT#FINGERPRINT, for the coordinator's --agent; on standard error \
            the token (once) and a log. A load ends 2.5 s after the last message of its coordinator.",
        ],
        examples: &[
            ("", "tailsight agent"),
            ("", "tailsight agent --listen 10.0.0.7:7411 --token-file token \\\n    --allow 10.0.0.0/8:11211"),
            (
                "",
                "tailsight agent --listen 0.0.0.0:7411 --allow 10.0.0.0/8:11211 \\\n    \
                 --certificate agent.pem --key agent.key --client-ca ca.pem",
            ),
        ],
        exits: &[(0, "stopped by a signal"), FAILED, USAGE],
        files: &[],
        environment: &[],
    },
    Page {
        name: "man",
        usage: &["[COMMAND]", "-o DIR"],
        notes: &[],
        examples: &[
            ("read a page that is not installed", "tailsight man record | man -l -"),
            ("install every page", "sudo tailsight man -o /usr/local/share/man/man1"),
        ],
        exits: &[DONE, FAILED, USAGE],
        files: &[],
        environment: &[],
    },
    Page {
        name: "schema",
        usage: &["<COMMAND>"],
        notes: &[
            "JSON Schema, draft 2020-12. Outputs may grow: fields that a schema does not name are allowed, those that it \
            requires stay.",
            "The views of `events` read a table `events` with the columns of `events/cpu-N.arrow` and the number of the core as \
            `cpu`; docs/schema.md makes one.",
        ],
        examples: &[
            ("", "tailsight schema diagnose > diagnose.schema.json"),
            ("events by their names in DuckDB", "tailsight schema events > events.sql"),
            ("every field of a cause, in words", "tailsight schema diagnose | jq '.\"$defs\".Cause.properties'"),
        ],
        exits: &[DONE, FAILED, USAGE],
        files: &[],
        environment: &[],
    },
    Page {
        name: "completions",
        usage: &["<SHELL>"],
        notes: &[],
        examples: &[
            ("", "tailsight completions bash > \\\n    ~/.local/share/bash-completion/completions/tailsight"),
            ("in a folder of $fpath", "tailsight completions zsh > ~/.zfunc/_tailsight"),
            ("", "tailsight completions fish > ~/.config/fish/completions/tailsight.fish"),
        ],
        exits: &[DONE, FAILED, USAGE],
        files: &[],
        environment: &[],
    },
];
