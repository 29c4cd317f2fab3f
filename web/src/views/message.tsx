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
  | { id: number; timeline: Timeline; built: Built; beside: Beside | null | undefined }
  | { id: number; missing: string };

export function MessageView({ store }: { store: Store }) {
  useStore(store);
  const data = store.data,
    page = data.page,
    id = store.shown(),
    row = data.row(id);
  const [loaded, set] = useState<Loaded | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the page and its store stay the same while it is open.
  useEffect(() => {
    let gone = false;
    if (id < 0) return;
    store.pin(id);
    timelineOf(page, id)
      .then((bundle) => {
        if (gone) return;
        const timeline = bundle?.messages.find((m) => m.id === id);
        set(
          timeline
            ? { id, timeline, built: build(bundle!, timeline, page.reference, page.roles), beside: bundle!.beside }
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
      ? row === data.slowest
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
        <Whole store={store} timeline={ready.timeline} built={ready.built} beside={ready.beside} />
      )}
    </Section>
  );
}

/** Its neighbours by latency, of all messages and of the same cause. */
function Around({ store, id, beside }: { store: Store; id: number; beside: Beside | null | undefined }) {
  const data = store.data,
    row = data.row(id);
  const find = (better: (ns: number, best: number) => boolean, side: 1 | -1, same: boolean) => {
    let best = -1;
    const at = data.latency[row]!;
    const consider = (i: number) => {
      const ns = data.latency[i]!;
      if (
        i === row ||
        (side > 0 ? ns < at || (ns === at && i < row) : ns > at || (ns === at && i > row)) ||
        Number.isNaN(ns)
      )
        return;
      if (best < 0 || better(ns, data.latency[best]!)) best = i;
    };
    // Of the focus where it is one of these: their timelines are at hand. Where not every message has a row, the server
    // knows.
    if (store.inFocus(row) || same) {
      for (const i of data.focus) if (!same || data.cause[i] === data.cause[row]) consider(i);
    } else if (data.sampled) return (side > 0 ? beside?.slower : beside?.faster) ?? -1;
    else for (let i = 0; i < data.n; i++) consider(i);
    return data.id(best);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: it depends on the rows, whose change is a new version.
  const [slower, faster, next] = useMemo(
    () =>
      [
        find((ns, best) => ns < best, 1, false),
        find((ns, best) => ns > best, -1, false),
        store.inFocus(row) ? find((ns, best) => ns > best, -1, true) : -1,
      ] as const,
    [id, beside, data.version],
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
      {button(store.state.message === null || data.slowest === row ? -1 : data.id(data.slowest), "Slowest")}
    </div>
  );
}

function Missing({ store, id, why }: { store: Store; id: number; why: string }) {
  const data = store.data,
    run = data.page.diagnosis.run,
    at = data.focus.indexOf(data.row(id)),
    columns = data.page.messages;
  const times =
    at >= 0
      ? Array.from({ length: columns.causes }, (_, c) => [c, data.times[at * columns.causes + c]!] as const)
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
            {times.map(([cause, ns]) => (
              <tr>
                <td>
                  <Swatch looks={store.looks} cause={cause} /> {store.looks.title(cause)}
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
  timeline,
  built,
  beside,
}: {
  store: Store;
  timeline: Timeline;
  built: Built;
  beside: Beside | null | undefined;
}) {
  const data = store.data,
    [zoom, setZoom] = useState<[number, number]>([0, timeline.length]);
  useEffect(() => setZoom([0, timeline.length]), [timeline]);
  const shown = zoom[1] > timeline.length ? ([0, timeline.length] as [number, number]) : zoom;
  const meta = [
    plural(timeline.bytes, "byte"),
    timeline.flow,
    "thread " + timeline.tid,
    timeline.class ?? "",
    timeline.pairing ? "paired by " + timeline.pairing : "",
    timeline.ahead ? plural(timeline.ahead, "message") + " served ahead of it" : "",
  ]
    .filter(Boolean)
    .join(" · ");
  // Between two stages: a button that zooms to it.
  const legs = timeline.marks.flatMap(([name, at], i) =>
    i === 0
      ? [stageName(name)]
      : [
          " → ",
          <button
            type="button"
            title={"Zoom to " + stageName(timeline.marks[i - 1]![0]) + " → " + stageName(name)}
            onClick={() => setZoom([timeline.marks[i - 1]![1], Math.max(at, timeline.marks[i - 1]![1] + 20)])}
          >
            {"+" + duration(at - timeline.marks[i - 1]![1])}
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
        {shown[0] > 0 || shown[1] < timeline.length ? (
          <>
            {" "}
            <button type="button" class="link" onClick={() => setZoom([0, timeline.length])}>
              Show all
            </button>
          </>
        ) : null}
      </p>
      {timeline.ahead_ids.length ? (
        <p class="meta">
          Ahead of it, the last first:{" "}
          {timeline.ahead_ids.map((id, i) => (
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
      <Lanes key={timeline.id} store={store} timeline={timeline} built={built} zoom={shown} setZoom={setZoom} />
      <p class="hint">
        Drag across the timeline to zoom in; after a click the wheel zooms too. Double-click or 0 shows it all. Keys: +
        and − zoom, ← → move, n and p step through the boxes. Ticks under a lane are samples of the clock, with their
        call stacks.
      </p>
      <Rows store={store} timeline={timeline} built={built} />
      <details>
        <summary>{"The boxes as a table (" + count(built.boxes.length) + ")"}</summary>
        <BoxTable store={store} built={built} />
      </details>
      <p class="hint">
        {"Slower than " +
          ((beside ? beside.place / Math.max(1, data.complete) : data.rank(timeline.length - 1)) * 100).toFixed(2) +
          " % of the messages. In a terminal: "}
        <code>{"tailsight show " + data.page.diagnosis.run + " " + timeline.id}</code>
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
function Rows({ store, timeline, built }: { store: Store; timeline: Timeline; built: Built }) {
  const { page } = store.data,
    sum = built.rows.reduce((a, r) => a + r.ns, 0),
    top = Math.max(1, ...built.rows.map((r) => Math.max(r.ns, r.reference)));
  // Rows of less than a hundredth, here and usually, are one row until they are asked for.
  const [unfolded, setAll] = useState(false),
    least = 0.01 * timeline.length;
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
            .filter((r) => !folds || unfolded || !isSmall(r))
            .map((row) => (
              <tr class={row.more < 0 ? "less" : ""} data-ns={row.ns} data-usual={row.reference}>
                <td class="what">
                  <b>{row.key.title || row.key.name}</b>
                  <small>
                    {page.categories[row.key.category] + " on the " + page.roles[row.key.role] + ", " + row.key.leg}
                  </small>
                </td>
                <td class="twobars" aria-hidden="true">
                  {bar(row.ns, store.looks.css(row.cause))}
                  {bar(row.reference, "var(--own)")}
                </td>
                <td class="num">{duration(row.ns)}</td>
                <td class="num">{duration(row.reference)}</td>
                <td class="num">{more(row.more)}</td>
                <td>
                  {row.cause !== null ? (
                    <>
                      <Swatch looks={store.looks} cause={row.cause} /> {store.looks.name(row.cause)}
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
                <button
                  type="button"
                  class="link"
                  aria-expanded={unfolded ? "true" : "false"}
                  onClick={() => setAll(!unfolded)}
                >
                  {(unfolded ? "Hide " : "Show ") + small.length + " smaller rows"}
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
              {sum === timeline.length ? "" : " of " + duration(timeline.length)}
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
          {built.boxes.slice(0, most).map((box) => (
            <tr>
              <td class="num">{(box.from / 1000).toFixed(2)}</td>
              <td class="num">{duration(box.to - box.from)}</td>
              <td class="num">{box.own ? duration(box.own) : "–"}</td>
              <td>{built.lanes[box.lane]!.name}</td>
              <td>
                <code>{box.path}</code>
              </td>
              <td>{box.cause !== null ? store.looks.title(box.cause) : ""}</td>
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
