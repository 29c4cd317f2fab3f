// View 1: the answer in one sentence and what the first cause did; after the causes the percentiles of each leg, where
// a median message spends its time, inherent against excess, what was lost and what the recording cost.
import type { Store } from "../store";
import { open } from "../store";
import type { Diagnosis, TypicalRow } from "../types";
import { Bar, guessed, Head, Rich, Scroll, Section } from "../parts";
import { count, duration, durationParts, percent, plural, prose } from "../units";

/** The transmit leg's name says where it begins when that is not the send call. */
export function legName(diagnosis: Diagnosis, leg: string): string {
  const from = Object.values(diagnosis.send_entry ?? {}),
    allFrom = (source: string) => from.length > 0 && from.every((s) => s === source);
  return leg !== "transmit"
    ? leg
    : allFrom("driver")
      ? "transmit (from the driver)"
      : allFrom("net_dev_queue")
        ? "transmit (from the qdisc)"
        : leg;
}

export function Header({ store }: { store: Store }) {
  const { page } = store.data,
    diagnosis = page.diagnosis,
    meta = page.meta;
  const leg = diagnosis.leg === "total" ? "" : legName(diagnosis, diagnosis.leg) + " only · ";
  // Where most has no known owner, that is the answer.
  const unknown = diagnosis.causes.find((c) => c.category === "unexplained" && c.share > 0.5);
  const first = (unknown ?? firstCause(store))?.explanation ?? "";
  return (
    <header>
      <p class="eyebrow" id="eyebrow">
        {diagnosis.app +
          " · " +
          leg +
          count(diagnosis.messages.complete) +
          " of " +
          plural(diagnosis.messages.total, segments(diagnosis) ? "segment" : "message") +
          " in " +
          duration(meta.end_ns - meta.start_ns)}
      </p>
      <h1 id="verdict">{prose(page.verdict)}</h1>
      {first ? (
        <p class="answer" id="answer">
          <Rich text={first} />
        </p>
      ) : null}
      {meta.state === "complete" ? null : (
        <p class="note">{"This run is partial: " + (meta.partial || "the recorder did not finish") + "."}</p>
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
    diagnosis = page.diagnosis,
    meta = page.meta,
    host = meta.host,
    target = meta.target;
  const started = meta.started_unix_ns
    ? new Date(meta.started_unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) + " UTC"
    : "";
  const list = (v: number[]) =>
    v.length > 6 ? v.slice(0, 6).join(", ") + " and " + (v.length - 6) + " more" : v.join(", ");
  const facts: [string, string | undefined | null][] = [
    ["Recorded", started],
    [
      "Target",
      [
        target.selector,
        target.pids.length ? (target.pids.length > 1 ? "pids " : "pid ") + list(target.pids) : "",
        target.ports.length ? (target.ports.length > 1 ? "ports " : "port ") + list(target.ports) : "",
      ]
        .filter(Boolean)
        .join(" · "),
    ],
    ["Kernel", [host.kernel, host.arch].filter(Boolean).join(" ")],
    ["Processor", [host.cpu_model, host.cpus ? plural(host.cpus, "core") : ""].filter(Boolean).join(", ")],
    ["Source", meta.source],
    ["Compared with", diagnosis.against ? "the run " + diagnosis.against : ""],
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
    diagnosis = page.diagnosis;
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
              ns={diagnosis.latency_ns[key]}
              interval={intervalOf(store, diagnosis.leg, key)}
              needed={page.needed[key]}
            />
          ))}
        </dl>
      </section>
      <Legs store={store} />
      <Slowest store={store} />
      <Ideal d={diagnosis} />
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
    diagnosis = page.diagnosis;
  const names = ["receive", "service", "transmit", "total"].filter((n) => diagnosis.legs?.[n]);
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
            {names.map((name) => (
              <tr class={name === diagnosis.leg ? "chosen" : ""}>
                <td>
                  {name === diagnosis.leg ? <b>{legName(diagnosis, name)}</b> : legName(diagnosis, name)}
                  {name === diagnosis.leg ? <small>explained on this page</small> : null}
                </td>
                {page.percentiles.map((k) => (
                  <td class="num" data-ns={diagnosis.legs[name]![k]}>
                    {diagnosis.legs[name]![k] === undefined ? "N/A" : duration(diagnosis.legs[name]![k]!)}
                    {(() => {
                      const i = intervalOf(store, name, k);
                      return i && diagnosis.legs[name]![k] !== undefined ? <small>{between(i)}</small> : null;
                    })()}
                  </td>
                ))}
                <td class="num">{count(diagnosis.legs[name]!.messages)}</td>
              </tr>
            ))}
            {diagnosis.ideal_ns ? (
              <tr class="less">
                <td>
                  ideal server<small>the same arrivals, a queue without anything in its way</small>
                </td>
                {page.percentiles.map((k) => (
                  <td class="num">{diagnosis.ideal_ns![k] === undefined ? "" : duration(diagnosis.ideal_ns![k]!)}</td>
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
function Ideal({ d: diagnosis }: { d: Diagnosis }) {
  const ideal = diagnosis.ideal;
  if (!ideal) return null;
  const rows: [string, Record<string, number>][] = [
    ["messages in focus", ideal.focus],
    ["all messages", ideal.all],
  ];
  const part = (row: Record<string, number>) => {
    const inherent = row.inherent_ns ?? 0,
      mean = row.mean_ns ?? inherent + (row.excess_ns ?? 0);
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
            {rows.map(([name, row]) => (
              <tr>
                <td>{name}</td>
                <td class="share">
                  <Bar share={part(row)} top={1} color="var(--soft)" />
                </td>
                <td class="num">{duration(row.inherent_ns!)}</td>
                <td class="num">{duration(row.excess_ns ?? 0)}</td>
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
  const settings = store.data.page.meta.settings ?? [];
  if (!settings.length) return null;
  const hurt = settings.filter((s) => s.verdict === "hurts"),
    others = settings.filter((s) => s.verdict !== "hurts");
  const verdict: Record<string, string> = { good: "good", unknown: "not known", not_present: "not present" };
  return (
    <Section
      id="host"
      title="Settings of the host"
      lede={
        (hurt.length
          ? (hurt.length === 1 ? "One of " : count(hurt.length) + " of ") +
            plural(settings.length, "setting") +
            " that were read before the recording " +
            (hurt.length === 1 ? "is" : "are") +
            " known to lengthen tails; whether they did so here, the causes say. "
          : "None of " +
            plural(settings.length, "setting") +
            " that were read before the recording is known to lengthen tails. ") +
        "The command tailsight doctor says how to change each."
      }
    >
      {hurt.length ? (
        <Scroll label="Table of the settings that lengthen tails">
          <table>
            <Head cells={[["Setting"], ["Value"], ["Why it matters"]]} />
            <tbody>
              {hurt.map((setting) => (
                <tr data-setting={setting.id}>
                  <td>{setting.title}</td>
                  <td>{setting.value}</td>
                  <td>
                    <Rich text={setting.why} />
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
                {others.map((setting) => (
                  <tr data-setting={setting.id}>
                    <td>{setting.title}</td>
                    <td>{setting.value}</td>
                    <td>{verdict[setting.verdict] ?? setting.verdict}</td>
                    <td>
                      <Rich text={setting.why} />
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
    diagnosis = page.diagnosis;
  if (!diagnosis.not_available || !diagnosis.slowest?.length) return null;
  return (
    <Section id="slowest" title="The slowest messages one by one">
      <Scroll label="Table of the slowest messages">
        <table>
          <Head cells={[["Message"], ["Latency", true], ["Where it went"]]} />
          <tbody>
            {diagnosis.slowest.map((message, i) => (
              <tr>
                <td>
                  <button type="button" class="link" onClick={() => open(store, message.id)}>
                    {count(message.id)}
                  </button>
                  <small>{message.flow}</small>
                </td>
                <td class="num">{duration(message.latency_ns)}</td>
                <td>
                  {message.parts
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
    typical = page.diagnosis.typical;
  if (!typical?.rows.length) return null;
  const rows = typical.rows.map((r, i) => [r, i] as const),
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
        plural(typical.messages, "message") +
        " around the median, " +
        duration(typical.mean_ns) +
        ". It is compared with nothing: what every message waits for is in no difference, and so in no cause."
      }
    >
      <Scroll label="Table of the time of a median message">
        <table class="causes">
          <Head cells={[["What"], ["Share"], ["Per message", true]]} />
          <tbody>
            {big.map(([row, i]) => (
              <>
                <tr>
                  <td class="what">
                    <b>{page.typical_titles[i]}</b>
                    <small>
                      {(row.name && row.name !== row.category
                        ? page.categories[row.category] + " on the "
                        : "on the ") +
                        page.roles[row.role] +
                        ", " +
                        row.leg +
                        guessed(row)}
                    </small>
                  </td>
                  <td class="share">
                    <Bar share={row.share} top={top} color="var(--soft)" />
                  </td>
                  <td class="num">{duration(row.mean_ns)}</td>
                </tr>
                {(row.advice ?? []).map((text) => (
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
  const requests = store.data.page.requests,
    names = store.data.page.messages.classes;
  if (!requests) return null;
  const complete = requests.classes.reduce((a, c) => a + c.messages, 0),
    focus = requests.classes.reduce((a, c) => a + c.focus, 0);
  const choose = (name: string) => {
    const value = names.indexOf(name);
    if (value >= 0) store.set({ filter: { by: "class", value } });
  };
  return (
    <Section
      id="requests"
      title="Requests"
      lede={"Each message is one " + requests.protocol + " request. " + requests.pairing}
    >
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
            {requests.classes.map((group) => (
              <tr>
                <td class="what">
                  {names.includes(group.name) ? (
                    <button type="button" class="link" onClick={() => choose(group.name)}>
                      {group.name}
                    </button>
                  ) : (
                    group.name
                  )}
                </td>
                <td class="num">{count(group.messages)}</td>
                <td class="num">{duration(group.p50_ns)}</td>
                <td class="num">{group.p99_ns === null ? "N/A" : duration(group.p99_ns)}</td>
                <td class="num">{count(group.focus)}</td>
                <td class="num">
                  {percent(focus ? group.focus / focus : 0) + ", " + percent(group.messages / complete)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}
