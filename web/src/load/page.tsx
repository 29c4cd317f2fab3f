// The page of measurements: one of `load`, several overlaid, or a sweep. Where there are several, their table chooses
// the one whose details are shown, and which are drawn.
import type { ComponentChildren } from "preact";
import { Head, Scroll, Section } from "../parts";
import { count, duration, percent, plural, prose } from "../units";
import { AgainstRate, colorOf, Distributions, LoadOverTime, objective, OverTime } from "./plots";
import { useChoice, type LoadStore } from "./store";
import type { Known, Report, Result, Summary } from "./types";

const latencyName = (r: Report) => (r.latency === "service" ? "service time" : "response time");
const between = (p: Known, word = " to ") => duration(p.lower_ns) + word + duration(p.upper_ns);
const names = (r: Report) =>
  Object.keys(r.response_ns.percentiles).sort((a, b) => parseFloat(a.slice(1)) - parseFloat(b.slice(1)));
const words = (text: string) => text[0]!.toUpperCase() + text.slice(1);

export function LoadPage({ store }: { store: LoadStore }) {
  const { data } = store,
    several = data.results.length > 1 || data.sweep;
  return (
    <>
      <a
        class="skip"
        href="#ccdf"
        onClick={(e) => {
          e.preventDefault();
          document.getElementById("ccdf-title")?.scrollIntoView();
        }}
      >
        Skip to the distribution
      </a>
      <Header store={store} />
      <main>
        {data.sweep ? <AgainstRate store={store} /> : null}
        {several && data.results.length ? <Results store={store} /> : null}
        {data.results.length ? <Details store={store} /> : null}
      </main>
      <footer id="footer">
        {"Tailsight " +
          (data.results[0]?.report.version ?? "") +
          ". The method: docs/load.md. One file, nothing is loaded from anywhere."}
      </footer>
      <p class="live" id="live" aria-live="polite" />
    </>
  );
}

function Details({ store }: { store: LoadStore }) {
  useChoice(store);
  const of = store.data.results.length > 1 ? ", " + store.one.name : "";
  return (
    <>
      <Latency r={store.one} of={of} />
      <Distributions store={store} />
      <OverTime store={store} />
      <LoadOverTime store={store} />
      <Checks r={store.one} of={of} />
      <Client r={store.one} of={of} />
    </>
  );
}

function Header({ store }: { store: LoadStore }) {
  const { results, sweep, headline } = store.data,
    first = results[0],
    r = first?.report;
  const eyebrow = [
    (r?.protocol ?? sweep?.protocol) + " at " + (r?.target ?? sweep?.target),
    r ? new Date(r.began_s * 1000).toISOString().replace("T", " ").slice(0, 16) + " UTC" : "",
    sweep
      ? plural(sweep.points.length || (sweep.objective?.tries.length ?? 0), "rate")
      : results.length > 1
        ? plural(results.length, "measurement")
        : "",
  ]
    .filter(Boolean)
    .join(" · ");
  const title = headline
    ? (/^p\d/.test(headline) ? headline : words(headline)) + "."
    : results.length > 1
      ? words(latencyName(r!)) + " of " + plural(results.length, "measurement")
      : (first?.headline ?? "");
  const single = results.length === 1 && !sweep && first;
  return (
    <header>
      <p class="eyebrow" id="eyebrow">
        {eyebrow}
      </p>
      <h1 id="verdict">{prose(title)}</h1>
      {single ? <Facts r={first} /> : null}
      <div id="alerts">{single ? notes(first).map((text) => <p class="note">{prose(text)}</p>) : null}</div>
    </header>
  );
}

function Facts({ r: { report: r, samples } }: { r: Result }) {
  const rate =
    r.rate.asked === null
      ? count(r.rate.sent) + "/s, closed loop"
      : count(r.rate.sent) + "/s of " + count(r.rate.asked) + "/s asked";
  const arrivals = typeof r.plan.arrivals === "string" ? r.plan.arrivals : JSON.stringify(r.plan.arrivals);
  const facts: [string, string][] = [
    ["Load", rate],
    ["Arrivals", arrivals],
    ["Connections", count(r.plan.connections)],
    ["Samples", count(samples)],
    ["Requests", count(r.counts.sent ?? 0)],
    [
      "Client",
      r.client.cpu_ns_per_request === null ? "N/A" : duration(r.client.cpu_ns_per_request) + " of CPU a request",
    ],
  ];
  return (
    <dl class="facts" id="facts">
      {facts.map(([k, v]) => (
        <div>
          <dt>{k}</dt>
          <dd>{v}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What a reader should know besides the number. */
function notes({ report: r }: Result): string[] {
  const v = r.verdict,
    out: string[] = [],
    level = (p: Known) => " at " + +(100 * p.level).toFixed(2) + " %";
  if (v.verdict === "number") {
    for (const p of v.percentiles)
      if (p.how.method === "effective-sample-size")
        out.push(
          "Neighbouring samples depend on each other at every affordable sampling rate: the interval of " +
            p.percentile +
            " is that of " +
            count(p.how.effective_n ?? 0) +
            " independent samples (effective sample size).",
        );
  } else {
    for (const p of v.passed ?? [])
      out.push(
        "What passed: the " +
          p.percentile +
          " " +
          latencyName(r) +
          " is " +
          duration(p.value_ns) +
          ", between " +
          between(p, " and ") +
          level(p) +
          ".",
      );
    for (const p of v.bounds ?? [])
      out.push(
        "What is known: the " +
          p.percentile +
          " " +
          latencyName(r) +
          " is between " +
          between(p, " and ") +
          level(p) +
          ", which is wider than asked.",
      );
    if (v.no_bounds_because)
      out.push(
        "No bounds of " + (v.missing ?? []).map((m) => m.percentile).join(", ") + ": " + v.no_bounds_because + ".",
      );
    out.push(
      "What would help: " +
        v.hint +
        "." +
        (v.bounds?.length ? "" : " The curves below are of the samples kept; they are no result."),
    );
  }
  if (r.restarts.length)
    out.push(
      "The measurement began anew " +
        plural(r.restarts.length, "time") +
        ": " +
        [...new Set(r.restarts)].join("; ") +
        ".",
    );
  for (const c of r.complaints) out.push(words(c.text) + ".");
  if (r.against)
    out.push(
      (r.against.worse ? "Worse than " : "Not worse than ") +
        r.against.file +
        ": " +
        r.against.percentile +
        " " +
        duration(r.against.value_ns) +
        " against " +
        duration(r.against.other_ns) +
        ", difference " +
        duration(r.against.lower_ns) +
        " to " +
        duration(r.against.upper_ns) +
        ".",
    );
  if (r.objective)
    out.push(
      "The objective " +
        objective(r.objective.objective) +
        (r.objective.met ? " is met" : r.objective.confidence === null ? " is not shown to be met" : " is not met") +
        (r.objective.confidence === null ? "." : ", confidence " + percent(r.objective.confidence) + "."),
    );
  return out;
}

/** Each measurement in a row: press one for its details, or leave it out of the plots. */
function Results({ store }: { store: LoadStore }) {
  const choice = useChoice(store),
    { results } = store.data;
  const cell = (r: Result) => {
    const v = r.report.verdict,
      known = v.verdict === "number" ? v.percentiles : [...(v.passed ?? []), ...(v.bounds ?? [])];
    return (
      <>
        {v.verdict === "number" ? null : <small>{"N/A: " + prose(v.reason)}</small>}
        {known.map((p) => (
          <div>
            {p.percentile + " " + duration(p.value_ns)}
            <small>{between(p)}</small>
          </div>
        ))}
      </>
    );
  };
  const median = (r: Report) => {
    const e = (r.latency === "service" ? r.service_ns : r.response_ns).percentiles.p50;
    return e ? duration(e.value) : "N/A";
  };
  return (
    <Section
      id="results"
      title={store.data.sweep ? "Each rate" : "Each measurement"}
      lede="Press a name for its details below; the box leaves its curves out of the plots."
    >
      <Scroll label="Table of the measurements">
        <table>
          <Head
            cells={[
              ["Drawn"],
              ["Measurement"],
              ["Sent", true],
              ["Median", true],
              ["Asked for, with its interval"],
              ["Samples", true],
            ]}
          />
          <tbody>
            {results.map((r, i) => (
              <tr class={i === choice.chosen ? "chosen" : ""}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={"Draw " + r.name}
                    checked={!choice.without.includes(i)}
                    onChange={() => store.toggle(i)}
                  />
                </td>
                <td class="what">
                  <button
                    type="button"
                    class="name"
                    aria-pressed={i === choice.chosen ? "true" : "false"}
                    onClick={() => store.set({ chosen: i })}
                  >
                    <span class="key" style={{ display: "inline-block", background: `var(--${colorOf(i)})` }} />{" "}
                    <b>{r.name}</b>
                  </button>
                  {r.report.target === results[0]!.report.target ? null : (
                    <small>{r.report.protocol + " at " + r.report.target}</small>
                  )}
                </td>
                <td class="num">{count(r.report.rate.sent) + "/s"}</td>
                <td class="num">{median(r.report)}</td>
                <td>{cell(r)}</td>
                <td class="num">{count(r.samples)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {notes(store.one).map((text) => (
        <p class="note">
          {store.one.name + ": "}
          {prose(text)}
        </p>
      ))}
    </Section>
  );
}

function Latency({ r: result, of }: { r: Result; of: string }) {
  const r = result.report,
    keys = names(r),
    late = r.lateness_ns;
  const row = (name: string, what: string, s: Summary) => (
    <tr>
      <td class="what">
        {name}
        <small>{what}</small>
      </td>
      {keys.map((k) => {
        const e = s.percentiles[k];
        return (
          <td class="num" data-ns={e?.value}>
            {e ? duration(e.value) : "N/A"}
            {e ? <small>{duration(e.lower) + " to " + duration(e.upper)}</small> : null}
          </td>
        );
      })}
      <td class="num">{s.max === null ? "N/A" : duration(s.max)}</td>
    </tr>
  );
  const lateness = (k: string) => {
    const v = late.percentiles?.[k] ?? (late as unknown as Record<string, number | null | undefined>)[k];
    return v === null || v === undefined ? "" : duration(v);
  };
  return (
    <Section
      id="latency"
      title={"Latency" + of}
      lede={
        r.verdict.verdict === "number" || result.has_samples
          ? "With 95 % intervals. N/A: the sample cannot support it."
          : "The run supports no percentiles."
      }
    >
      <Scroll label="Table of the percentiles">
        <table id="latency-table">
          <Head cells={[[""], ...keys.map((k): [string, boolean] => [k, true]), ["slowest", true]]} />
          <tbody>
            {row("response time", "from due to answered", r.response_ns)}
            {row("service time", "from sent to answered", r.service_ns)}
            <tr>
              <td class="what">
                client lateness<small>{"from due to sent, all " + count(late.n) + " requests"}</small>
              </td>
              {keys.map((k) => (
                <td class="num">{lateness(k)}</td>
              ))}
              <td class="num">{late.max === null ? "" : duration(late.max)}</td>
            </tr>
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}

function Checks({ r: { report: r, evidence }, of }: { r: Result; of: string }) {
  const rows: { passed: boolean; id: string; text: string }[] = r.checks.map((c, i) => ({
    passed: c.passed,
    id: c.id,
    text: evidence[i] ?? c.test,
  }));
  const own = r.verdict.verdict === "number" ? null : r.verdict.failed;
  if (own && !r.checks.some((c) => c.id === own.id && !c.passed))
    rows.push({ passed: own.passed, id: own.id, text: own.test });
  return (
    <Section id="checks" title={"What was checked" + of}>
      {rows.length ? (
        <Scroll label="Table of the checks">
          <table class="checks">
            <Head cells={[["Result"], ["Check"], ["Evidence"]]} />
            <tbody>
              {rows.map((c) => (
                <tr>
                  <td class={c.passed ? "ok" : "bad"}>{c.passed ? "held" : "not held"}</td>
                  <td>{c.id.replace(/-/g, " ")}</td>
                  <td>
                    <small>{prose(c.text)}</small>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <p class="lede">The run ended before anything could be checked.</p>
      )}
      {r.steps.length ? (
        <>
          <h3>What the method did</h3>
          <List rows={r.steps.map((s) => [s.at_s.toFixed(1) + " s", prose(s.what)])} />
        </>
      ) : null}
    </Section>
  );
}

function Client({ r: { report: r }, of }: { r: Result; of: string }) {
  const c = r.client;
  return (
    <Section id="client" title={"The client" + of}>
      <List
        rows={[
          [
            "Price",
            c.cpu_ns_per_request === null
              ? "N/A"
              : duration(c.cpu_ns_per_request) + " of CPU a request, user and system, of the loading threads",
          ],
          [
            "Threads",
            c.threads +
              "; the busiest used " +
              percent(c.busiest_thread) +
              " of its core, the most starved waited " +
              percent(c.starved_thread) +
              " of the time for one",
          ],
          [
            "Time stamps",
            percent(c.stamped) +
              " of the receive times are the kernel's" +
              (c.hardware > 0
                ? " or the NIC's; of " + percent(c.hardware) + " of the samples both times are the NIC's"
                : "") +
              "; clocks compared to " +
              duration(c.clock_error_ns) +
              (c.stamps ? "; " + c.stamps : "") +
              (c.stamps_why ? ": " + c.stamps_why : "") +
              (c.stamps_hint ? ": " + c.stamps_hint : ""),
          ],
          [
            "Requests",
            Object.entries(r.counts)
              .filter(([, v]) => v > 0)
              .map(([k, v]) => count(v) + " " + k)
              .join(", "),
          ],
          ["Plan", <code>{JSON.stringify(r.plan)}</code>],
        ]}
      />
    </Section>
  );
}

function List({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="record">
      {rows.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}
