// View 4: one message (NSight Figures 5, 8, 9, 11): lanes, nested boxes, samples, marks, the messages ahead of it, and
// the table that sums to its latency, beside what a reference message has.
import { useEffect, useMemo, useState } from "preact/hooks";
import { timelineOf } from "../data";
import { Scroll, Section, Swatch } from "../parts";
import { open, useStore, type Store } from "../store";
import { build, type Built, type MessageRow } from "../timeline";
import type { Beside, Timeline } from "../types";
import { count, duration, more, plural } from "../units";
import { about } from "./balloon";
import { Lanes } from "./lanes";

type Loaded =
  | { id: number; of: Timeline; built: Built; beside: Beside | null | undefined }
  | { id: number; missing: string };

export function MessageView({ store }: { store: Store }) {
  useStore(store);
  const d = store.data,
    page = d.page,
    id = store.shown(),
    row = d.row(id);
  const [loaded, set] = useState<Loaded | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the page and its store stay the same while it is open.
  useEffect(() => {
    let gone = false;
    if (id < 0) return;
    store.pin(id);
    timelineOf(page, id)
      .then((bundle) => {
        if (gone) return;
        const of = bundle?.messages.find((m) => m.id === id);
        set(
          of
            ? { id, of, built: build(bundle!, of, page.reference, page.roles), beside: bundle!.beside }
            : {
                id,
                missing:
                  "Its timeline is not in this file, which has those of " +
                  plural(page.timelines.focus, "message") +
                  " in focus and of " +
                  plural(page.timelines.ids.reduce((a, b) => a + b.length, 0) - page.timelines.focus, "other") +
                  ", at random.",
              },
        );
      })
      .catch((error: Error) => {
        if (!gone) set({ id, missing: error.message });
      });
    return () => {
      gone = true;
    };
  }, [id]);
  if (id < 0)
    return (
      <Section id="message" title="What a message went through" lede="No message is complete.">
        {null}
      </Section>
    );
  const [title, rows] = row < 0 ? ["Message " + count(id), []] : about(store, row);
  const what =
    store.state.message === null
      ? row === d.slowest
        ? "The slowest message"
        : "The slowest of the chosen messages"
      : "Message " + count(id);
  const ready = loaded?.id === id ? loaded : null;
  return (
    <Section
      id="message"
      title="What a message went through"
      lede={
        "From the first sight in the stack to the end of the " +
        page.diagnosis.leg +
        " leg, on every core that the message waited for. Boxes nest: a box below runs inside the box above it. Hatched: nothing ran there. Colours are those of the causes."
      }
    >
      <div class="titlebar">
        <h3>{what}</h3>
        <Around store={store} id={id} beside={ready && "beside" in ready ? ready.beside : undefined} />
      </div>
      <p class="meta" id="message-meta">
        {title + " · " + rows.join(" · ")}
      </p>
      {!ready ? (
        <p class="lede">Unpacking…</p>
      ) : "missing" in ready ? (
        <Missing store={store} id={id} why={ready.missing} />
      ) : (
        <Whole store={store} of={ready.of} built={ready.built} beside={ready.beside} />
      )}
    </Section>
  );
}

/** Its neighbours by latency, of all messages and of the same cause. */
function Around({ store, id, beside }: { store: Store; id: number; beside: Beside | null | undefined }) {
  const d = store.data,
    row = d.row(id);
  const find = (better: (ns: number, best: number) => boolean, side: 1 | -1, same: boolean) => {
    let best = -1;
    const at = d.latency[row]!;
    const consider = (i: number) => {
      const ns = d.latency[i]!;
      if (
        i === row ||
        (side > 0 ? ns < at || (ns === at && i < row) : ns > at || (ns === at && i > row)) ||
        Number.isNaN(ns)
      )
        return;
      if (best < 0 || better(ns, d.latency[best]!)) best = i;
    };
    // Of the focus where it is one of these: their timelines are at hand. Where not every message has a row, the server
    // knows.
    if (store.inFocus(row) || same) {
      for (const i of d.focus) if (!same || d.cause[i] === d.cause[row]) consider(i);
    } else if (d.sampled) return (side > 0 ? beside?.slower : beside?.faster) ?? -1;
    else for (let i = 0; i < d.n; i++) consider(i);
    return d.id(best);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: it depends on the rows, whose change is a new version.
  const [slower, faster, next] = useMemo(
    () =>
      [
        find((ns, best) => ns < best, 1, false),
        find((ns, best) => ns > best, -1, false),
        store.inFocus(row) ? find((ns, best) => ns > best, -1, true) : -1,
      ] as const,
    [id, beside, d.version],
  );
  const button = (to: number, text: string) => (
    <button type="button" disabled={to < 0} onClick={() => store.set({ message: to })}>
      {text}
    </button>
  );
  return (
    <div class="switch around" role="group" aria-label="Other messages">
      {button(slower, "Slower")}
      {button(faster, "Faster")}
      {button(next, "Next of the same cause")}
      {button(store.state.message === null || d.slowest === row ? -1 : d.id(d.slowest), "Slowest")}
    </div>
  );
}

function Missing({ store, id, why }: { store: Store; id: number; why: string }) {
  const d = store.data,
    run = d.page.diagnosis.run,
    at = d.focus.indexOf(d.row(id)),
    m = d.page.messages;
  const times =
    at >= 0
      ? Array.from({ length: m.causes }, (_, c) => [c, d.times[at * m.causes + c]!] as const)
          .filter(([, ns]) => ns > 0)
          .sort((a, b) => b[1] - a[1])
      : [];
  return (
    <>
      <p class="note">
        {why} <code>{"tailsight show " + run + " " + id}</code> prints it; <code>{"tailsight view " + run}</code> shows
        any message on this page.
      </p>
      {times.length ? (
        <table class="paths">
          <tbody>
            {times.map(([c, ns]) => (
              <tr>
                <td>
                  <Swatch looks={store.looks} cause={c} /> {store.looks.title(c)}
                </td>
                <td class="num">{duration(ns)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
    </>
  );
}

const STAGES: Record<string, string> = {
  nic: "NIC",
  driver: "driver",
  stack: "stack",
  handoff: "hand-off",
  wake: "wake",
  on_cpu: "on core",
  recv_enter: "recv entered",
  recv: "recv",
  send: "send",
  xmit: "xmit",
  nic_tx: "NIC out",
};
export const stageName = (s: string) => STAGES[s] ?? s;

function Whole({
  store,
  of,
  built,
  beside,
}: {
  store: Store;
  of: Timeline;
  built: Built;
  beside: Beside | null | undefined;
}) {
  const d = store.data,
    [zoom, setZoom] = useState<[number, number]>([0, of.length]);
  useEffect(() => setZoom([0, of.length]), [of]);
  const shown = zoom[1] > of.length ? ([0, of.length] as [number, number]) : zoom;
  const meta = [
    plural(of.bytes, "byte"),
    of.flow,
    "thread " + of.tid,
    of.class ?? "",
    of.pairing ? "paired by " + of.pairing : "",
    of.ahead ? plural(of.ahead, "message") + " served ahead of it" : "",
  ]
    .filter(Boolean)
    .join(" · ");
  // Between two stages: a button that zooms to it.
  const legs = of.marks.flatMap(([name, at], i) =>
    i === 0
      ? [stageName(name)]
      : [
          " → ",
          <button
            type="button"
            title={"Zoom to " + stageName(of.marks[i - 1]![0]) + " → " + stageName(name)}
            onClick={() => setZoom([of.marks[i - 1]![1], Math.max(at, of.marks[i - 1]![1] + 20)])}
          >
            {"+" + duration(at - of.marks[i - 1]![1])}
          </button>,
          " " + stageName(name),
        ],
  );
  return (
    <div class="timeline">
      <p class="meta">
        {meta}
        <br />
        {legs}
        {shown[0] > 0 || shown[1] < of.length ? (
          <>
            {" "}
            <button type="button" class="link" onClick={() => setZoom([0, of.length])}>
              Show all
            </button>
          </>
        ) : null}
      </p>
      {of.ahead_ids.length ? (
        <p class="meta">
          Ahead of it, the last first:{" "}
          {of.ahead_ids.map((id, i) => (
            <>
              {i ? " · " : ""}
              <button type="button" onClick={() => open(store, id)}>
                {count(id)}
              </button>
            </>
          ))}
        </p>
      ) : null}
      <Legend store={store} built={built} />
      <Lanes key={of.id} store={store} of={of} built={built} zoom={shown} setZoom={setZoom} />
      <p class="hint">
        Drag across the timeline to zoom in; after a click the wheel zooms too. Double-click or 0 shows it all. Keys: +
        and − zoom, ← → move, n and p step through the boxes. Ticks under a lane are samples of the clock, with their
        call stacks.
      </p>
      <Rows store={store} of={of} built={built} />
      <details>
        <summary>{"The boxes as a table (" + count(built.boxes.length) + ")"}</summary>
        <BoxTable store={store} built={built} />
      </details>
      <p class="hint">
        {"Slower than " +
          ((beside ? beside.place / Math.max(1, d.complete) : d.rank(of.length - 1)) * 100).toFixed(2) +
          " % of the messages. In a terminal: "}
        <code>{"tailsight show " + d.page.diagnosis.run + " " + of.id}</code>
      </p>
    </div>
  );
}

function Legend({ store, built }: { store: Store; built: Built }) {
  const looks = store.looks,
    used = [
      ...new Set(
        built.boxes.filter((b) => !b.gap && b.cause !== null && looks.coloured.has(b.cause)).map((b) => b.cause!),
      ),
    ].sort((a, b) => a - b);
  const key = (background: string, text: string) => (
    <li>
      <span class="item">
        <span class="patch" style={{ background }} />
        {text}
      </span>
    </li>
  );
  return (
    <ul class="legend plain" aria-label="Colours">
      {used.map((i) => key(looks.css(i), looks.title(i)))}
      {key("var(--own)", "as usual")}
      {key("repeating-linear-gradient(135deg,var(--faint) 0 1px,var(--gap) 1px 5px)", "idle or waiting")}
    </ul>
  );
}

/** The parts of the message: they sum to its latency. */
function Rows({ store, of, built }: { store: Store; of: Timeline; built: Built }) {
  const { page } = store.data,
    sum = built.rows.reduce((a, r) => a + r.ns, 0),
    top = Math.max(1, ...built.rows.map((r) => Math.max(r.ns, r.reference)));
  // Rows of less than a hundredth, here and usually, are one row until they are asked for.
  const [all, setAll] = useState(false),
    least = 0.01 * of.length;
  const isSmall = (r: MessageRow) => r.ns < least && r.reference < Math.max(least, 0.01 * page.reference_ns);
  const small = built.rows.filter(isSmall),
    add = (f: (r: MessageRow) => number) => small.reduce((a, r) => a + f(r), 0);
  const folds = small.length > 2;
  const bar = (ns: number, color: string) => <i style={{ width: (ns / top) * 100 + "%", background: color }} />;
  return (
    <Scroll label="Table of the parts of the message">
      <table class="causes rows" id="message-rows">
        <thead>
          <tr>
            <th>Where its time went</th>
            <th>This message, a reference message</th>
            <th class="num">It has</th>
            <th class="num">Usual</th>
            <th class="num">More</th>
            <th>Counts to</th>
          </tr>
        </thead>
        <tbody>
          {built.rows
            .filter((r) => !folds || all || !isSmall(r))
            .map((r) => (
              <tr class={r.more < 0 ? "less" : ""} data-ns={r.ns} data-usual={r.reference}>
                <td class="what">
                  <b>{r.key.title || r.key.name}</b>
                  <small>
                    {page.categories[r.key.category] + " on the " + page.roles[r.key.role] + ", " + r.key.leg}
                  </small>
                </td>
                <td class="twobars" aria-hidden="true">
                  {bar(r.ns, store.looks.css(r.cause))}
                  {bar(r.reference, "var(--own)")}
                </td>
                <td class="num">{duration(r.ns)}</td>
                <td class="num">{duration(r.reference)}</td>
                <td class="num">{more(r.more)}</td>
                <td>
                  {r.cause !== null ? (
                    <>
                      <Swatch looks={store.looks} cause={r.cause} /> {store.looks.name(r.cause)}
                    </>
                  ) : (
                    ""
                  )}
                </td>
              </tr>
            ))}
          {folds ? (
            <tr class="less">
              <td>
                <button type="button" class="link" aria-expanded={all ? "true" : "false"} onClick={() => setAll(!all)}>
                  {(all ? "Hide " : "Show ") + small.length + " smaller rows"}
                </button>
              </td>
              <td />
              <td class="num">{duration(add((r) => r.ns))}</td>
              <td class="num">{duration(add((r) => r.reference))}</td>
              <td class="num">{more(add((r) => r.more))}</td>
              <td />
            </tr>
          ) : null}
          <tr class="sum">
            <td>
              <b>Sum</b>
            </td>
            <td />
            <td class="num" id="message-sum" data-ns={sum}>
              <b>{duration(sum)}</b>
              {sum === of.length ? "" : " of " + duration(of.length)}
            </td>
            <td class="num">{duration(page.reference_ns)}</td>
            <td class="num">{more(sum - page.reference_ns)}</td>
            <td />
          </tr>
        </tbody>
      </table>
    </Scroll>
  );
}

function BoxTable({ store, built }: { store: Store; built: Built }) {
  const most = 400;
  return (
    <Scroll label="Boxes as a table">
      <table>
        <thead>
          <tr>
            {["from, µs", "duration", "its own", "where", "what", "counts to"].map((h, i) => (
              <th class={i < 3 ? "num" : ""}>{h}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {built.boxes.slice(0, most).map((b) => (
            <tr>
              <td class="num">{(b.from / 1000).toFixed(2)}</td>
              <td class="num">{duration(b.to - b.from)}</td>
              <td class="num">{b.own ? duration(b.own) : "–"}</td>
              <td>{built.lanes[b.lane]!.name}</td>
              <td>
                <code>{b.path}</code>
              </td>
              <td>{b.cause !== null ? store.looks.title(b.cause) : ""}</td>
            </tr>
          ))}
          {built.boxes.length > most ? (
            <tr class="less">
              <td colSpan={6}>{"and " + count(built.boxes.length - most) + " more"}</td>
            </tr>
          ) : null}
        </tbody>
      </table>
    </Scroll>
  );
}
