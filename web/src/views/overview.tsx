// View 1: the answer in one sentence and what the first cause did; after the causes the percentiles of each leg, where
// a median message spends its time, inherent against excess, what was lost and what the recording cost.
import type { Store } from "../store";
import { open } from "../store";
import type { Diagnosis, TypicalRow } from "../types";
import { Bar, Head, Rich, Scroll, Section } from "../parts";
import { count, duration, durationParts, percent, plural, prose } from "../units";

/** The transmit leg's name says where it begins when that is not the send call. */
export function legName(d: Diagnosis, leg: string): string {
  const from = Object.values(d.send_entry ?? {}),
    all = (source: string) => from.length > 0 && from.every((s) => s === source);
  return leg !== "transmit"
    ? leg
    : all("driver")
      ? "transmit (from the driver)"
      : all("net_dev_queue")
        ? "transmit (from the qdisc)"
        : leg;
}

export function Header({ store }: { store: Store }) {
  const { page } = store.data,
    d = page.diagnosis,
    m = page.meta;
  const leg = d.leg === "total" ? "" : legName(d, d.leg) + " only · ";
  // Where most has no known owner, that is the answer.
  const unknown = d.causes.find((c) => c.category === "unexplained" && c.share > 0.5);
  const first = (unknown ?? firstCause(store))?.explanation ?? "";
  return (
    <header>
      <p class="eyebrow" id="eyebrow">
        {d.app +
          " · " +
          leg +
          count(d.messages.complete) +
          " of " +
          plural(d.messages.total, segments(d) ? "segment" : "message") +
          " in " +
          duration(m.end_ns - m.start_ns)}
      </p>
      <h1 id="verdict">{prose(page.verdict)}</h1>
      {first ? (
        <p class="answer" id="answer">
          <Rich text={first} />
        </p>
      ) : null}
      {m.state === "complete" ? null : (
        <p class="note">{"This run is partial: " + (m.partial || "the recorder did not finish") + "."}</p>
      )}
    </header>
  );
}

/**
 * The cause whose sentence is the answer, as on the terminal: the first row that is a cause and of which there is more
 * than usual.
 */
export const firstCause = (store: Store) =>
  store.data.page.diagnosis.causes.find((c, i) => store.looks.named(i) && c.share > 0);

/** Whether most messages are segments of connections that many requests share. */
const segments = (d: Diagnosis) =>
  ((d.multiplexed?.http2 ?? 0) + (d.multiplexed?.tls_shared ?? 0)) * 2 > d.messages.total;

/** What limits the answer. */
export function Notes({ store }: { store: Store }) {
  const { notes } = store.data.page.diagnosis;
  if (!notes.length) return null;
  return (
    <Section id="alerts" title="What limits this answer">
      {notes.map((text) => (
        <p class="note">
          <Rich text={text} />
        </p>
      ))}
    </Section>
  );
}

/** What was recorded, when and on which machine. */
export function Facts({ store }: { store: Store }) {
  const { page } = store.data,
    d = page.diagnosis,
    m = page.meta,
    h = m.host,
    t = m.target;
  const started = m.started_unix_ns
    ? new Date(m.started_unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC"
    : "";
  const list = (v: number[]) =>
    v.length > 6 ? v.slice(0, 6).join(", ") + " and " + (v.length - 6) + " more" : v.join(", ");
  const facts: [string, string | undefined | null][] = [
    ["Recorded", started],
    [
      "Target",
      [
        t.selector,
        t.pids.length ? (t.pids.length > 1 ? "pids " : "pid ") + list(t.pids) : "",
        t.ports.length ? (t.ports.length > 1 ? "ports " : "port ") + list(t.ports) : "",
      ]
        .filter(Boolean)
        .join(" · "),
    ],
    ["Kernel", [h.kernel, h.arch].filter(Boolean).join(" ")],
    ["Processor", [h.cpu_model, h.cpus ? plural(h.cpus, "core") : ""].filter(Boolean).join(", ")],
    ["Source", m.source],
    ["Compared with", d.against ? "the run " + d.against : ""],
  ];
  return (
    <Section id="recorded" title="What was recorded">
      <dl class="facts" id="facts">
        {facts
          .filter(([, v]) => v)
          .map(([name, value]) => (
            <div>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </Section>
  );
}

export function Overview({ store }: { store: Store }) {
  const { page } = store.data,
    d = page.diagnosis;
  return (
    <>
      <section aria-labelledby="percentiles-title" id="overview">
        <h2 id="percentiles-title" class="quiet">
          Latency
        </h2>
        <dl class="tiles" id="percentiles">
          {page.percentiles.map((key) => (
            <Tile
              name={key}
              ns={d.latency_ns[key]}
              interval={intervalOf(store, d.leg, key)}
              needed={page.needed[key]}
            />
          ))}
        </dl>
      </section>
      <Legs store={store} />
      <Slowest store={store} />
      <Ideal d={d} />
    </>
  );
}

/** The 95 % interval of a leg's percentile, where the messages support one. */
function intervalOf(store: Store, leg: string, key: string): [number, number] | undefined {
  return store.data.page.curves.find((c) => c.kind === "leg" && c.name === leg)?.intervals?.[key];
}
const between = (i: [number, number]) => duration(i[0]) + " … " + duration(i[1]);

function Tile({
  name,
  ns,
  interval,
  needed,
}: {
  name: string;
  ns: number | undefined;
  interval: [number, number] | undefined;
  needed: number | undefined;
}) {
  if (ns !== undefined) {
    const [value, unit] = durationParts(ns);
    return (
      <div>
        <dt>{name}</dt>
        <dd data-ns={ns}>
          {value}
          <span class="unit">{unit}</span>
          {interval ? (
            <span class="why" title="95 % interval">
              {between(interval)}
            </span>
          ) : null}
        </dd>
      </div>
    );
  }
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        N/A<span class="why">{needed ? "needs " + plural(needed, "message") : "no messages"}</span>
      </dd>
    </div>
  );
}

function Legs({ store }: { store: Store }) {
  const { page } = store.data,
    d = page.diagnosis;
  const names = ["receive", "service", "transmit", "total"].filter((n) => d.legs?.[n]);
  if (!names.length) return null;
  return (
    <section aria-labelledby="legs-title" id="legs-section">
      <h2 id="legs-title" class="quiet">
        Every leg
      </h2>
      <Scroll label="Table of the legs">
        <table id="legs">
          <thead>
            <tr>
              <th>Leg</th>
              {page.percentiles.map((k) => (
                <th class="num">{k}</th>
              ))}
              <th class="num">Messages</th>
            </tr>
          </thead>
          <tbody>
            {names.map((n) => (
              <tr class={n === d.leg ? "chosen" : ""}>
                <td>
                  {n === d.leg ? <b>{legName(d, n)}</b> : legName(d, n)}
                  {n === d.leg ? <small>explained on this page</small> : null}
                </td>
                {page.percentiles.map((k) => (
                  <td class="num" data-ns={d.legs[n]![k]}>
                    {d.legs[n]![k] === undefined ? "N/A" : duration(d.legs[n]![k]!)}
                    {(() => {
                      const i = intervalOf(store, n, k);
                      return i && d.legs[n]![k] !== undefined ? <small>{between(i)}</small> : null;
                    })()}
                  </td>
                ))}
                <td class="num">{count(d.legs[n]!.messages)}</td>
              </tr>
            ))}
            {d.ideal_ns ? (
              <tr class="less">
                <td>
                  ideal server<small>the same arrivals, a queue without anything in its way</small>
                </td>
                {page.percentiles.map((k) => (
                  <td class="num">{d.ideal_ns![k] === undefined ? "" : duration(d.ideal_ns![k]!)}</td>
                ))}
                <td />
              </tr>
            ) : null}
          </tbody>
        </table>
      </Scroll>
      {names.some((n) => page.percentiles.some((k) => intervalOf(store, n, k))) ? (
        <p class="hint">
          Below a percentile: its 95 % interval, which allows for slow messages coming together. Where there is none,
          the messages are too few or their level wanders too much for one.
        </p>
      ) : null}
    </section>
  );
}

/** Inherent: what the ideal server would have taken too. */
function Ideal({ d }: { d: Diagnosis }) {
  const of = d.ideal;
  if (!of) return null;
  const rows: [string, Record<string, number>][] = [
    ["messages in focus", of.focus],
    ["all messages", of.all],
  ];
  const part = (r: Record<string, number>) => {
    const inherent = r.inherent_ns ?? 0,
      mean = r.mean_ns ?? inherent + (r.excess_ns ?? 0);
    return mean > 0 ? inherent / mean : 0;
  };
  if (rows.some(([, r]) => typeof r.inherent_ns !== "number")) return null;
  return (
    <Section
      id="inherent"
      title="Inherent and excess"
      lede="Of a mean message, what an ideal server would have taken too (its own work, and waiting for the messages before it), and what came on top."
    >
      <Scroll label="Table of inherent and excess latency">
        <table>
          <Head cells={[["Of"], ["Inherent"], ["", true], ["Excess", true]]} />
          <tbody>
            {rows.map(([name, r]) => (
              <tr>
                <td>{name}</td>
                <td class="share">
                  <Bar share={part(r)} top={1} color="var(--soft)" />
                </td>
                <td class="num">{duration(r.inherent_ns!)}</td>
                <td class="num">{duration(r.excess_ns ?? 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}

/** The settings of the host as they were before the recording: those that lengthen tails, then the others. */
export function Settings({ store }: { store: Store }) {
  const all = store.data.page.meta.settings ?? [];
  if (!all.length) return null;
  const hurt = all.filter((s) => s.verdict === "hurts"),
    others = all.filter((s) => s.verdict !== "hurts");
  const verdict: Record<string, string> = { good: "good", unknown: "not known", not_present: "not present" };
  return (
    <Section
      id="host"
      title="Settings of the host"
      lede={
        (hurt.length
          ? (hurt.length === 1 ? "One of " : count(hurt.length) + " of ") +
            plural(all.length, "setting") +
            " that were read before the recording " +
            (hurt.length === 1 ? "is" : "are") +
            " known to lengthen tails; whether they did so here, the causes say. "
          : "None of " +
            plural(all.length, "setting") +
            " that were read before the recording is known to lengthen tails. ") +
        "The command tailsight doctor says how to change each."
      }
    >
      {hurt.length ? (
        <Scroll label="Table of the settings that lengthen tails">
          <table>
            <Head cells={[["Setting"], ["Value"], ["Why it matters"]]} />
            <tbody>
              {hurt.map((s) => (
                <tr data-setting={s.id}>
                  <td>{s.title}</td>
                  <td>{s.value}</td>
                  <td>
                    <Rich text={s.why} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : null}
      {others.length ? (
        <details>
          <summary>{"The other " + plural(others.length, "setting")}</summary>
          <Scroll label="Table of the other settings">
            <table>
              <Head cells={[["Setting"], ["Value"], ["Effect on tails"], ["Why"]]} />
              <tbody>
                {others.map((s) => (
                  <tr data-setting={s.id}>
                    <td>{s.title}</td>
                    <td>{s.value}</td>
                    <td>{verdict[s.verdict] ?? s.verdict}</td>
                    <td>
                      <Rich text={s.why} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </details>
      ) : null}
    </Section>
  );
}

/** Only where no causes can be said: else the causes have their evidence. */
function Slowest({ store }: { store: Store }) {
  const { page } = store.data,
    d = page.diagnosis;
  if (!d.not_available || !d.slowest?.length) return null;
  return (
    <Section id="slowest" title="The slowest messages one by one">
      <Scroll label="Table of the slowest messages">
        <table>
          <Head cells={[["Message"], ["Latency", true], ["Where it went"]]} />
          <tbody>
            {d.slowest.map((m, i) => (
              <tr>
                <td>
                  <button type="button" class="link" onClick={() => open(store, m.id)}>
                    {count(m.id)}
                  </button>
                  <small>{m.flow}</small>
                </td>
                <td class="num">{duration(m.latency_ns)}</td>
                <td>
                  {m.parts
                    .slice(0, 4)
                    .map((p, j) => duration(p.mean_ns) + " " + page.slowest_titles[i]![j])
                    .join(", ")}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}

export function Typical({ store }: { store: Store }) {
  const { page } = store.data,
    t = page.diagnosis.typical;
  if (!t?.rows.length) return null;
  const rows = t.rows.map((r, i) => [r, i] as const),
    big = rows.filter(([r], i) => i < 12 && r.share >= 0.005),
    small = rows.slice(big.length);
  const top = Math.max(...big.map(([r]) => r.share), 1e-9),
    sum = (f: (r: TypicalRow) => number) => small.reduce((a, [r]) => a + f(r), 0);
  return (
    <Section
      id="typical"
      title="Where a median message spends its time"
      lede={
        "The mean of the " +
        plural(t.messages, "message") +
        " around the median, " +
        duration(t.mean_ns) +
        ". It is compared with nothing: what every message waits for is in no difference, and so in no cause."
      }
    >
      <Scroll label="Table of the time of a median message">
        <table class="causes">
          <Head cells={[["What"], ["Share"], ["Per message", true]]} />
          <tbody>
            {big.map(([r, i]) => (
              <>
                <tr>
                  <td class="what">
                    <b>{page.typical_titles[i]}</b>
                    <small>
                      {(r.name && r.name !== r.category ? page.categories[r.category] + " on the " : "on the ") +
                        page.roles[r.role] +
                        ", " +
                        r.leg}
                    </small>
                  </td>
                  <td class="share">
                    <Bar share={r.share} top={top} color="var(--soft)" />
                  </td>
                  <td class="num">{duration(r.mean_ns)}</td>
                </tr>
                {(r.advice ?? []).map((text) => (
                  <tr class="detail">
                    <td colSpan={3}>
                      <div class="inner">
                        <p class="note">
                          <Rich text={text} />
                        </p>
                      </div>
                    </td>
                  </tr>
                ))}
              </>
            ))}
            {small.length ? (
              <tr class="less">
                <td>{plural(small.length, "smaller row")}</td>
                <td class="share">
                  <div class="sharebar">
                    <b>{percent(sum((r) => r.share))}</b>
                  </div>
                </td>
                <td class="num">{duration(sum((r) => r.mean_ns))}</td>
              </tr>
            ) : null}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}

export function Requests({ store }: { store: Store }) {
  const r = store.data.page.requests,
    names = store.data.page.messages.classes;
  if (!r) return null;
  const complete = r.classes.reduce((a, c) => a + c.messages, 0),
    focus = r.classes.reduce((a, c) => a + c.focus, 0);
  const choose = (name: string) => {
    const value = names.indexOf(name);
    if (value >= 0) store.set({ filter: { by: "class", value } });
  };
  return (
    <Section id="requests" title="Requests" lede={"Each message is one " + r.protocol + " request. " + r.pairing}>
      <Scroll label="Table of the requests">
        <table>
          <Head
            cells={[
              ["Class"],
              ["Messages", true],
              ["p50", true],
              ["p99", true],
              ["In focus", true],
              ["Of the focus, of all", true],
            ]}
          />
          <tbody>
            {r.classes.map((c) => (
              <tr>
                <td class="what">
                  {names.includes(c.name) ? (
                    <button type="button" class="link" onClick={() => choose(c.name)}>
                      {c.name}
                    </button>
                  ) : (
                    c.name
                  )}
                </td>
                <td class="num">{count(c.messages)}</td>
                <td class="num">{duration(c.p50_ns)}</td>
                <td class="num">{c.p99_ns === null ? "N/A" : duration(c.p99_ns)}</td>
                <td class="num">{count(c.focus)}</td>
                <td class="num">{percent(focus ? c.focus / focus : 0) + ", " + percent(c.messages / complete)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}
