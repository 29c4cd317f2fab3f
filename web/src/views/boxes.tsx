// View 3: box plots of what each cause took from each message in focus (NSight Figures 4, 13, 15, 18), by deviation or
// by messages hit.
import { useRef } from "preact/hooks";
import { Chart, crisp, fit, hideTip, line, linearTicks, say, showTip, type Plot } from "../chart";
import { Scroll, Section, Switch } from "../parts";
import { useStore, type Store } from "../store";
import { ink } from "../theme";
import type { Diagnosis, FunctionPart } from "../types";
import { count, duration, more, percent, plural, short, tick } from "../units";

export interface BoxRow {
  cause: number;
  n: number;
  hit: number;
  low: number;
  q1: number;
  median: number;
  q3: number;
  high: number;
  least: number;
  most: number;
  mean: number;
}

/**
 * Of each cause the rows of the messages in focus, by their time of it, ascending: made once, so that a choice needs no
 * sorting.
 */
const ascending = new WeakMap<Store, Map<number, Uint32Array>>();
function byTime(store: Store, cause: number): Uint32Array {
  const { focus, times, page } = store.data;
  const byCause = ascending.get(store) ?? new Map<number, Uint32Array>();
  ascending.set(store, byCause);
  let rows = byCause.get(cause);
  if (!rows) {
    // Time and row in one number, which sorts without a function: 32 bits and 21.
    const packed = new Float64Array(focus.length);
    for (let k = 0; k < packed.length; k++) packed[k] = times[k * page.messages.causes + cause]! * 2 ** 21 + k;
    rows = Uint32Array.from(packed.sort(), (v) => v % 2 ** 21);
    byCause.set(cause, rows);
  }
  return rows;
}

/** The time of each cause above its reference mean, over the messages in focus that the choice leaves. */
export function boxes(store: Store): BoxRow[] {
  const d = store.data,
    m = d.page.messages,
    left = new Uint8Array(d.focus.length);
  let n = 0;
  for (let k = 0; k < left.length; k++)
    if (store.chosen(d.focus[k]!)) {
      left[k] = 1;
      n++;
    }
  const out: BoxRow[] = [];
  for (let c = 0; c < m.causes && n > 0; c++) {
    if (!store.looks.named(c)) continue;
    const usual = m.reference_ns?.[c] ?? 0,
      values = new Float64Array(n);
    let hit = 0,
      sum = 0,
      i = 0;
    for (const k of byTime(store, c))
      if (left[k]) {
        const v = d.times[k * m.causes + c]! - usual;
        values[i++] = v;
        sum += v;
        if (v > 0) hit++;
      }
    const at = (q: number) => values[Math.min(values.length - 1, Math.max(0, Math.ceil(q * values.length) - 1))]!;
    out.push({
      cause: c,
      n: values.length,
      hit,
      low: at(0.05),
      q1: at(0.25),
      median: at(0.5),
      q3: at(0.75),
      high: at(0.95),
      least: values[0]!,
      most: values[values.length - 1]!,
      mean: sum / values.length,
    });
  }
  const by = store.state.boxes;
  return out
    .sort((a, b) => (by === "messages" ? b.hit - a.hit || b.median - a.median : b.median - a.median || b.mean - a.mean))
    .filter((r) => r.hit > 0)
    .slice(0, 24);
}

/** Of the causes whose absence was replayed: a percentile of all messages without each, by place, with its interval. */
export function whatIf(d: Diagnosis): { key: string; of: Map<number, { ns: number; ci: [number, number] }> } | null {
  const all = d.ideal?.what_if ?? [],
    keys = Object.keys(all[0]?.latency_ns ?? {}).filter((k) => k.startsWith("p") && d.latency_ns[k] !== undefined);
  const key = keys.includes("p99") ? "p99" : keys.sort((a, b) => parseFloat(a.slice(1)) - parseFloat(b.slice(1))).pop();
  if (!key) return null;
  return {
    key,
    of: new Map(
      all.flatMap((w) =>
        w.latency_ns[key] !== undefined && w.ci95_ns[key]
          ? [[w.rank - 1, { ns: w.latency_ns[key]!, ci: w.ci95_ns[key]! }] as const]
          : [],
      ),
    ),
  };
}

/** A row of the plot: a cause, or a function of the cause above it. */
type Row = BoxRow & { fn?: FunctionPart };

/** The boxes with those of their functions below them; functions are known of all messages in focus only. */
function withFunctions(store: Store, of: BoxRow[]): Row[] {
  if (store.narrowed()) return of;
  return of.flatMap((r): Row[] => [
    r,
    ...(store.data.page.diagnosis.causes[r.cause]!.functions ?? [])
      .filter((f) => f.spread_ns)
      .slice(0, 3)
      .map((f): Row => {
        const [low, q1, median, q3, high, most] = f.spread_ns!;
        return {
          cause: r.cause,
          n: store.data.focus.length,
          hit: f.messages,
          low,
          q1,
          median,
          q3,
          high,
          least: low,
          most,
          mean: f.deviation_ns,
          fn: f,
        };
      }),
  ]);
}

/** Two parts of a cause may be in one function, in different ones of a library. */
const fnName = (f: FunctionPart) => f.name + (f.inside ? " (in " + f.inside + ")" : "");

const ROW = 30;
/** From this width the what-if has a column of the plot; below, the table and the tip have it. */
const WIDE = 760;

export function Boxes({ store }: { store: Store }) {
  const state = useStore(store),
    d = store.data,
    looks = store.looks,
    causes = boxes(store),
    rows = withFunctions(store, causes);
  const over = useRef(-1),
    latest = useRef(rows),
    tipOf = useRef<(r: Row) => [string, string[]]>(() => ["", []]);
  latest.current = rows;
  if (!d.focus.length || !d.page.diagnosis.causes.length) return null;
  const without = whatIf(d.page.diagnosis),
    fns = rows.filter((r) => r.fn).length;
  const what = (r: Row) => (r.fn ? undefined : without?.of.get(r.cause));
  const lede =
    "For each cause how much of it the messages in focus have" +
    (d.page.messages.reference_ns ? " above the reference mean" : "") +
    ": box from the 25th to the 75th percentile with the median in it, whiskers to the 5th and 95th, a dot at the most. " +
    (fns
      ? "Below a cause its functions" +
        (rows.some((r) => r.fn && !r.fn.waits)
          ? ", from samples: each message's time in the cause, divided as its samples are. "
          : ", by where the thread slept. ")
      : "") +
    (without?.of.size
      ? "What-if: the " +
        without.key +
        " of all messages (" +
        duration(d.page.diagnosis.latency_ns[without.key]!) +
        ") as a replay predicts it without the cause, with its 95 % interval, for the largest causes that can be taken out. docs/ideal.md says how exact such predictions were in the lab. "
      : "") +
    (store.narrowed() ? "Of the " + plural(rows[0]?.n ?? 0, "message") + " in focus that the choice leaves. " : "") +
    "Press a row to see its messages alone. Axis: linear near zero, logarithmic beyond 1 µs.";
  const column = (w: number) => (without?.of.size && w >= WIDE ? 172 : 0),
    left = (w: number) => Math.min(300, w * 0.36),
    right = (w: number) => 128 + column(w);
  // A symmetric log axis: deviations may be negative.
  const bend = 1000,
    s = (v: number) => Math.sign(v) * Math.log1p(Math.abs(v) / bend);
  const from = Math.min(0, ...rows.map((r) => r.least)),
    to = Math.max(1, ...rows.map((r) => r.most)) * 1.1;
  const x = (v: number, p: Plot) =>
    left(p.width) + ((s(v) - s(from)) / (s(to) - s(from))) * (p.width - left(p.width) - right(p.width));
  const draw = (g: CanvasRenderingContext2D, p: Plot) => {
    const bottom = rows.length * ROW + 8,
      end = p.width - column(p.width);
    g.textBaseline = "top";
    g.textAlign = "center";
    g.lineWidth = 1;
    let last = -Infinity;
    for (const v of ticks(from, to)) {
      const px = x(v, p);
      g.strokeStyle = ink("line");
      line(g, crisp(px), 4, crisp(px), bottom);
      if (px - last < 56) continue;
      last = px;
      g.fillStyle = ink("soft");
      g.fillText(v ? tick(v) : "0", px, bottom + 6);
    }
    rows.forEach((r, k) => {
      const y = k * ROW + ROW / 2 + 4,
        color = looks.color(r.cause),
        faint = state.cause !== null && state.cause !== r.cause,
        indent = r.fn ? 16 : 0,
        half = r.fn ? 5 : 8;
      if (k === over.current && document.activeElement === p.canvas) {
        g.fillStyle = ink("panel");
        g.fillRect(0, y - ROW / 2, p.width, ROW);
      }
      g.textBaseline = "middle";
      g.textAlign = "left";
      g.fillStyle = ink("ink");
      g.globalAlpha = faint ? 0.45 : 1;
      g.fillText(fit(g, r.fn ? fnName(r.fn) : looks.name(r.cause), left(p.width) - 14 - indent), indent, y - 6);
      g.fillStyle = ink("soft");
      g.fillText(
        fit(
          g,
          r.fn
            ? r.fn.waits
              ? "waited in it"
              : "function, " + plural(r.fn.samples[0], "sample")
            : d.page.categories[d.page.diagnosis.causes[r.cause]!.category]!,
          left(p.width) - 14 - indent,
        ),
        indent,
        y + 8,
      );
      g.strokeStyle = color;
      g.fillStyle = color;
      g.lineWidth = 1.4;
      line(g, x(r.low, p), y, x(r.q1, p), y);
      line(g, x(r.q3, p), y, x(r.high, p), y);
      for (const v of [r.low, r.high]) line(g, x(v, p), y - 5, x(v, p), y + 5);
      g.globalAlpha *= 0.35;
      g.fillRect(x(r.q1, p), y - half, Math.max(1, x(r.q3, p) - x(r.q1, p)), 2 * half);
      g.globalAlpha = faint ? 0.45 : 1;
      g.strokeRect(x(r.q1, p), y - half, Math.max(1, x(r.q3, p) - x(r.q1, p)), 2 * half);
      g.lineWidth = 3;
      line(g, x(r.median, p), y - half, x(r.median, p), y + half);
      g.beginPath();
      g.arc(x(r.most, p), y, 2.5, 0, 7);
      g.fill();
      g.textAlign = "right";
      g.fillStyle = ink("soft");
      g.fillText(more(r.median), end, y - 6);
      g.fillText(count(r.hit) + " hit, " + percent(r.hit / r.n), end, y + 8);
      const w = what(r);
      if (column(p.width) && w) {
        g.fillStyle = ink("ink");
        g.fillText(without!.key + " without it " + duration(w.ns), p.width, y - 6);
        g.fillStyle = ink("soft");
        g.fillText(duration(w.ci[0]) + " … " + duration(w.ci[1]), p.width, y + 8);
      }
      g.globalAlpha = 1;
    });
  };
  const tip = (r: Row): [string, string[]] => {
    const w = what(r),
      spread = [
        "25 % to 75 %: " + duration(r.q1) + " … " + duration(r.q3),
        "5 % to 95 %: " + duration(r.low) + " … " + duration(r.high),
        "most " + duration(r.most),
      ];
    if (r.fn)
      return [
        short(fnName(r.fn), 200) + ", of " + looks.title(r.cause),
        [
          "median " + more(r.median) + ", mean " + more(r.mean),
          ...spread,
          count(r.hit) +
            " of " +
            count(r.n) +
            (r.fn.waits ? " messages waited in it" : " messages have a sample in it"),
        ],
      ];
    return [
      looks.title(r.cause),
      [
        "median " + more(r.median) + ", mean " + more(r.mean),
        ...spread,
        count(r.hit) + " of " + count(r.n) + " messages have more than usual",
        ...(w
          ? [
              "without it, as predicted: " +
                without!.key +
                " " +
                duration(w.ns) +
                " (" +
                duration(w.ci[0]) +
                " … " +
                duration(w.ci[1]) +
                ")",
            ]
          : []),
      ],
    ];
  };
  const choose = (r: Row | undefined) => {
    if (r) store.set(r.fn ? { fn: r.fn.name } : { cause: store.state.cause === r.cause ? null : r.cause });
  };
  const setup = (p: Plot) => {
    const row = (e: MouseEvent) => {
      const box = p.canvas.getBoundingClientRect();
      return latest.current[Math.floor((e.clientY - box.top - 4) / ROW)];
    };
    p.canvas.style.cursor = "pointer";
    p.canvas.addEventListener("click", (e) => choose(row(e)));
    p.canvas.addEventListener("pointermove", (e) => {
      const r = row(e);
      if (r) showTip(e.clientX, e.clientY, ...tipOf.current(r));
      else hideTip();
    });
    p.canvas.addEventListener("pointerleave", hideTip);
    p.canvas.addEventListener("blur", () => {
      hideTip();
      p.redraw();
    });
    p.canvas.addEventListener("keydown", (e) => {
      const all = latest.current;
      if (e.key === "Enter") choose(all[over.current]);
      else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        over.current = Math.max(0, Math.min(all.length - 1, over.current + (e.key === "ArrowDown" ? 1 : -1)));
        p.redraw();
        const r = all[over.current],
          box = p.canvas.getBoundingClientRect();
        if (r) {
          const [title, lines] = tipOf.current(r);
          showTip(box.left + left(p.width), box.top + (over.current + 1) * ROW, title, lines);
          say(title + ", " + lines.join(", "));
        }
      } else return;
      e.preventDefault();
    });
  };
  tipOf.current = tip;
  return (
    <Section
      id="boxes"
      title="What each cause took from each message"
      lede={lede}
      aside={
        <Switch
          label="Order of the causes"
          value={state.boxes}
          options={[
            ["deviation", "By median"],
            ["messages", "By messages hit"],
          ]}
          choose={(b) => store.set({ boxes: b })}
        />
      }
    >
      {rows.length ? (
        <>
          <Chart
            height={rows.length * ROW + 34}
            label={
              "Box plots of " +
              plural(causes.length, "cause") +
              (fns ? " and " + plural(fns, "function") : "") +
              " over " +
              plural(rows[0]!.n, "message") +
              " in focus. Keys: up and down step through the rows, Enter shows one alone. The same as a table follows."
            }
            draw={draw}
            setup={setup}
          />
          <details>
            <summary>The same as a table</summary>
            <Scroll label="Box plots as a table">
              <table id="boxes-table">
                <thead>
                  <tr>
                    {[
                      "Cause",
                      "Median",
                      "Mean",
                      "p5",
                      "p25",
                      "p75",
                      "p95",
                      "Most",
                      "Messages hit",
                      ...(without?.of.size ? [without.key + " without it", "95 % interval"] : []),
                    ].map((h, i) => (
                      <th class={i ? "num" : ""}>{h}</th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {rows.map((r) => {
                    const w = what(r);
                    return (
                      <tr class={r.fn ? "less" : ""} data-rank={r.fn ? undefined : r.cause + 1} data-without={w?.ns}>
                        <td>{r.fn ? short(fnName(r.fn), 120) : looks.title(r.cause)}</td>
                        {[r.median, r.mean, r.low, r.q1, r.q3, r.high, r.most].map((v) => (
                          <td class="num">{duration(v)}</td>
                        ))}
                        <td class="num">{count(r.hit) + " of " + count(r.n)}</td>
                        {without?.of.size ? (
                          <>
                            <td class="num">{w ? duration(w.ns) : ""}</td>
                            <td class="num">{w ? duration(w.ci[0]) + " … " + duration(w.ci[1]) : ""}</td>
                          </>
                        ) : null}
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </Scroll>
          </details>
        </>
      ) : (
        <p class="lede">No message in focus that the choice leaves has more of a cause than usual.</p>
      )}
      <Functions store={store} />
    </Section>
  );
}

/** Beside the causes, their functions: NSight's boxes by function, where samples tell. */
function Functions({ store }: { store: Store }) {
  const causes = store.data.page.diagnosis.causes,
    { cause } = store.state;
  const rows = causes
    .flatMap((c, i) => (cause === null || cause === i ? (c.functions ?? []).map((f) => ({ f, c, i })) : []))
    .sort((a, b) => b.f.deviation_ns - a.f.deviation_ns)
    .slice(0, 12);
  if (!rows.length) return null;
  return (
    <details class="functions-of">
      <summary>{"By function (" + rows.length + "), from samples"}</summary>
      <Scroll label="Functions as a table">
        <table>
          <thead>
            <tr>
              <th>Function</th>
              <th>Of the cause</th>
              <th class="num">More than usual</th>
              <th class="num">95 % interval</th>
              <th class="num">Messages</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ f, i }) => (
              <tr>
                <td class="what">
                  <button type="button" class="link" onClick={() => store.set({ fn: f.name })}>
                    {f.name}
                  </button>
                  <small>{f.module}</small>
                </td>
                <td>{store.looks.name(i)}</td>
                <td class="num">{more(f.deviation_ns)}</td>
                <td class="num">{duration(f.ci95_ns[0]) + " … " + duration(f.ci95_ns[1])}</td>
                <td class="num">{count(f.messages)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}

function ticks(from: number, to: number): number[] {
  const out = [0];
  for (let e = 3; 10 ** e <= Math.max(to, -from); e++) {
    if (10 ** e <= to) out.push(10 ** e);
    if (-(10 ** e) >= from) out.unshift(-(10 ** e));
  }
  return out.length > 2 ? out : linearTicks(from, to, 5);
}
