// The page of measurements: one of `load`, several overlaid, or a sweep. Where there are several, their table chooses
// the one whose details are shown, and which are drawn.
import type { ComponentChildren } from "preact";
import { Head, Scroll, Section } from "../parts";
import { count, duration, percent, plural, prose } from "../units";
import { AgainstRate, colorOf, Distributions, LoadOverTime, objective, OverTime } from "./plots";
import { useChoice, type LoadStore } from "./store";
import type { Known, Met, Report, Result, Summary } from "./types";

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
        onClick={(event) => {
          event.preventDefault();
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
  const suffix = store.data.results.length > 1 ? ", " + store.shown.name : "";
  return (
    <>
      <Latency result={store.shown} suffix={suffix} />
      <Distributions store={store} />
      <OverTime store={store} />
      <LoadOverTime store={store} />
      <Checks result={store.shown} suffix={suffix} />
      <Client result={store.shown} suffix={suffix} />
    </>
  );
}

function Header({ store }: { store: LoadStore }) {
  const { results, sweep, headline } = store.data,
    first = results[0],
    report = first?.report;
  const eyebrow = [
    (report?.protocol ?? sweep?.protocol) + " at " + (report?.target ?? sweep?.target),
    report ? new Date(report.began_s * 1000).toISOString().replace("T", " ").slice(0, 16) + " UTC" : "",
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
      ? words(latencyName(report!)) + " of " + plural(results.length, "measurement")
      : (first?.headline ?? "");
  const single = results.length === 1 && !sweep && first;
  return (
    <header>
      <p class="eyebrow" id="eyebrow">
        {eyebrow}
      </p>
      <h1 id="verdict">{prose(title)}</h1>
      {single ? <Facts result={first} /> : null}
      <div id="alerts">{single ? notes(first).map((text) => <p class="note">{prose(text)}</p>) : null}</div>
    </header>
  );
}

function Facts({ result: { report, samples } }: { result: Result }) {
  const rate =
    report.rate.asked === null
      ? count(report.rate.sent) + "/s, closed loop"
      : count(report.rate.sent) + "/s of " + count(report.rate.asked) + "/s asked";
  const arrivals =
    typeof report.plan.arrivals === "string" ? report.plan.arrivals : JSON.stringify(report.plan.arrivals);
  const facts: [string, string][] = [
    ["Load", rate],
    ["Arrivals", arrivals],
    ["Connections", count(report.plan.connections)],
    ["Samples", count(samples)],
    ["Requests", count(report.counts.sent ?? 0)],
    [
      "Client",
      report.client.cpu_ns_per_request === null
        ? "N/A"
        : duration(report.client.cpu_ns_per_request) + " of CPU a request",
    ],
  ];
  return (
    <dl class="facts" id="facts">
      {facts.map(([k, cell]) => (
        <div>
          <dt>{k}</dt>
          <dd>{cell}</dd>
        </div>
      ))}
    </dl>
  );
}

/** On which side of its limit an objective is, and why that is open. */
function decided(o: Met): string {
  const name = "The objective " + objective(o.objective),
    sure = (confidence: number) => (confidence > 0.999 ? "above 99.9 %" : percent(confidence));
  // Results of older files have no count, and no decision but this.
  const why = o.reason
    ? ": " + o.reason
    : o.n
      ? `: ${count(o.above)} of ${count(o.n)} requests took longer or failed`
      : "";
  if (!o.met && o.decision !== "missed")
    return name + " is open, neither met nor missed with 95 % confidence" + why + ".";
  const confidence = o.confidence === null ? "" : ", confidence " + sure(o.met ? o.confidence : 1 - o.confidence);
  return name + (o.met ? " is met" : " is missed") + why + confidence + ".";
}

/** Its interval has in it how the level moved. */
const isWandering = (p: Known) => p.how.method === "self-normalised";

/** What a reader should know besides the number. */
function notes({ report }: Result): string[] {
  const verdict = report.verdict,
    out: string[] = report.objective ? [decided(report.objective)] : [],
    level = (p: Known) => " at " + +(100 * p.level).toFixed(2) + " %";
  if (verdict.verdict === "number") {
    for (const percentile of verdict.percentiles)
      if (percentile.how.method === "effective-sample-size")
        out.push(
          "Neighbouring samples depend on each other at every affordable sampling rate: the interval of " +
            percentile.percentile +
            " is that of " +
            count(percentile.how.effective_n ?? 0) +
            " independent samples (effective sample size).",
        );
  } else {
    for (const percentile of verdict.passed ?? [])
      out.push(
        "What passed: the " +
          percentile.percentile +
          " " +
          latencyName(report) +
          " is " +
          duration(percentile.value_ns) +
          ", between " +
          between(percentile, " and ") +
          level(percentile) +
          ".",
      );
    for (const percentile of verdict.bounds ?? [])
      out.push(
        "What is known: the " +
          percentile.percentile +
          " " +
          latencyName(report) +
          " is between " +
          between(percentile, " and ") +
          level(percentile) +
          (isWandering(percentile) ? "." : ", which is wider than asked."),
      );
    if ((verdict.bounds ?? []).some(isWandering))
      out.push("The level moved, or the run is short for such long correlation: the intervals include that.");
    if (verdict.no_bounds_because)
      out.push(
        "No bounds of " +
          (verdict.missing ?? []).map((m) => m.percentile).join(", ") +
          ": " +
          verdict.no_bounds_because +
          ".",
      );
    out.push(
      "What would help: " +
        verdict.hint +
        "." +
        (verdict.bounds?.length ? "" : " The curves below are of the samples kept; they are no result."),
    );
  }
  if (report.restarts.length)
    out.push(
      "The measurement began anew " +
        plural(report.restarts.length, "time") +
        ": " +
        [...new Set(report.restarts)].join("; ") +
        ".",
    );
  for (const c of report.complaints) out.push(words(c.text) + ".");
  if (report.against)
    out.push(
      (report.against.worse ? "Worse than " : "Not worse than ") +
        report.against.file +
        ": " +
        report.against.percentile +
        " " +
        duration(report.against.value_ns) +
        " against " +
        duration(report.against.other_ns) +
        ", difference " +
        duration(report.against.lower_ns) +
        " to " +
        duration(report.against.upper_ns) +
        ".",
    );
  return out;
}

/** Each measurement in a row: press one for its details, or leave it out of the plots. */
function Results({ store }: { store: LoadStore }) {
  const choice = useChoice(store),
    { results } = store.data;
  const cell = (result: Result) => {
    const verdict = result.report.verdict,
      percentiles =
        verdict.verdict === "number" ? verdict.percentiles : [...(verdict.passed ?? []), ...(verdict.bounds ?? [])];
    return (
      <>
        {verdict.verdict === "number" ? null : <small>{"N/A: " + prose(verdict.reason)}</small>}
        {percentiles.map((percentile) => (
          <div>
            {percentile.percentile + " " + duration(percentile.value_ns)}
            <small>{between(percentile)}</small>
          </div>
        ))}
      </>
    );
  };
  const median = (report: Report) => {
    const estimate = (report.latency === "service" ? report.service_ns : report.response_ns).percentiles.p50;
    return estimate ? duration(estimate.value) : "N/A";
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
            {results.map((result, i) => (
              <tr class={i === choice.chosen ? "chosen" : ""}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={"Draw " + result.name}
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
                    <b>{result.name}</b>
                  </button>
                  {result.report.target === results[0]!.report.target ? null : (
                    <small>{result.report.protocol + " at " + result.report.target}</small>
                  )}
                </td>
                <td class="num">{count(result.report.rate.sent) + "/s"}</td>
                <td class="num">{median(result.report)}</td>
                <td>{cell(result)}</td>
                <td class="num">{count(result.samples)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {notes(store.shown).map((text) => (
        <p class="note">
          {store.shown.name + ": "}
          {prose(text)}
        </p>
      ))}
    </Section>
  );
}

function Latency({ result, suffix }: { result: Result; suffix: string }) {
  const report = result.report,
    keys = names(report),
    late = report.lateness_ns;
  const row = (name: string, what: string, summary: Summary) => (
    <tr>
      <td class="what">
        {name}
        <small>{what}</small>
      </td>
      {keys.map((k) => {
        const estimate = summary.percentiles[k];
        return (
          <td class="num" data-ns={estimate?.value}>
            {estimate ? duration(estimate.value) : "N/A"}
            {estimate ? <small>{duration(estimate.lower) + " to " + duration(estimate.upper)}</small> : null}
          </td>
        );
      })}
      <td class="num">{summary.max === null ? "N/A" : duration(summary.max)}</td>
    </tr>
  );
  const lateness = (k: string) => {
    const late_ns = late.percentiles?.[k] ?? (late as unknown as Record<string, number | null | undefined>)[k];
    return late_ns === null || late_ns === undefined ? "" : duration(late_ns);
  };
  const hasPercentiles = [report.response_ns, report.service_ns].some((of) =>
    Object.values(of.percentiles).some((estimate) => estimate !== null),
  );
  return (
    <Section
      id="latency"
      title={"Latency" + suffix}
      lede={
        report.verdict.verdict === "number" || result.has_samples || hasPercentiles
          ? "With 95 % intervals. N/A: the sample cannot support it."
          : "The run supports no percentiles."
      }
    >
      <Scroll label="Table of the percentiles">
        <table id="latency-table">
          <Head cells={[[""], ...keys.map((k): [string, boolean] => [k, true]), ["slowest", true]]} />
          <tbody>
            {row("response time", "from due to answered", report.response_ns)}
            {row("service time", "from sent to answered", report.service_ns)}
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

function Checks({ result: { report, evidence }, suffix }: { result: Result; suffix: string }) {
  const rows: { passed: boolean; id: string; text: string }[] = report.checks.map((check, i) => ({
    passed: check.passed,
    id: check.id,
    text: evidence[i] ?? check.test,
  }));
  const own = report.verdict.verdict === "number" ? null : report.verdict.failed;
  if (own && !report.checks.some((c) => c.id === own.id && !c.passed))
    rows.push({ passed: own.passed, id: own.id, text: own.test });
  return (
    <Section id="checks" title={"What was checked" + suffix}>
      {rows.length ? (
        <Scroll label="Table of the checks">
          <table class="checks">
            <Head cells={[["Result"], ["Check"], ["Evidence"]]} />
            <tbody>
              {rows.map((check) => (
                <tr>
                  <td class={check.passed ? "ok" : "bad"}>{check.passed ? "held" : "not held"}</td>
                  <td>{check.id.replace(/-/g, " ")}</td>
                  <td>
                    <small>{prose(check.text)}</small>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <p class="lede">The run ended before anything could be checked.</p>
      )}
      {report.steps.length ? (
        <>
          <h3>What the method did</h3>
          <List rows={report.steps.map((s) => [s.at_s.toFixed(1) + " s", prose(s.what)])} />
        </>
      ) : null}
    </Section>
  );
}

function Client({ result: { report }, suffix }: { result: Result; suffix: string }) {
  const client = report.client;
  return (
    <Section id="client" title={"The client" + suffix}>
      <List
        rows={[
          [
            "Price",
            client.cpu_ns_per_request === null
              ? "N/A"
              : duration(client.cpu_ns_per_request) + " of CPU a request, user and system, of the loading threads",
          ],
          [
            "Threads",
            client.threads +
              "; the busiest used " +
              percent(client.busiest_thread) +
              " of its core, the most starved waited " +
              percent(client.starved_thread) +
              " of the time for one",
          ],
          [
            "Time stamps",
            percent(client.stamped) +
              " of the receive times are the kernel's" +
              (client.hardware > 0
                ? " or the NIC's; of " + percent(client.hardware) + " of the samples both times are the NIC's"
                : "") +
              "; clocks compared to " +
              duration(client.clock_error_ns) +
              (client.stamps ? "; " + client.stamps : "") +
              (client.stamps_why ? ": " + client.stamps_why : "") +
              (client.stamps_hint ? ": " + client.stamps_hint : ""),
          ],
          [
            "Requests",
            Object.entries(report.counts)
              .filter(([, v]) => v > 0)
              .map(([k, v]) => count(v) + " " + k)
              .join(", "),
          ],
          ["Plan", <code>{JSON.stringify(report.plan)}</code>],
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
