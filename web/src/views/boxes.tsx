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
  const data = store.data,
    columns = data.page.messages,
    left = new Uint8Array(data.focus.length);
  let chosen = 0;
  for (let k = 0; k < left.length; k++)
    if (store.chosen(data.focus[k]!)) {
      left[k] = 1;
      chosen++;
    }
  const out: BoxRow[] = [];
  for (let cause = 0; cause < columns.causes && chosen > 0; cause++) {
    if (!store.looks.named(cause)) continue;
    const usual = columns.reference_ns?.[cause] ?? 0,
      values = new Float64Array(chosen);
    let hit = 0,
      sum = 0,
      i = 0;
    for (const k of byTime(store, cause))
      if (left[k]) {
        const added = data.times[k * columns.causes + cause]! - usual;
        values[i++] = added;
        sum += added;
        if (added > 0) hit++;
      }
    const at = (q: number) => values[Math.min(values.length - 1, Math.max(0, Math.ceil(q * values.length) - 1))]!;
    out.push({
      cause: cause,
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
export function whatIf(
  diagnosis: Diagnosis,
): { key: string; of: Map<number, { ns: number; ci: [number, number] }> } | null {
  const predictions = diagnosis.ideal?.what_if ?? [],
    keys = Object.keys(predictions[0]?.latency_ns ?? {}).filter(
      (k) => k.startsWith("p") && diagnosis.latency_ns[k] !== undefined,
    );
  const key = keys.includes("p99") ? "p99" : keys.sort((a, b) => parseFloat(a.slice(1)) - parseFloat(b.slice(1))).pop();
  if (!key) return null;
  return {
    key,
    of: new Map(
      predictions.flatMap((prediction) =>
        prediction.latency_ns[key] !== undefined && prediction.ci95_ns[key]
          ? [[prediction.rank - 1, { ns: prediction.latency_ns[key]!, ci: prediction.ci95_ns[key]! }] as const]
          : [],
      ),
    ),
  };
}

/** A row of the plot: a cause, or a function of the cause above it. */
type Row = BoxRow & { fn?: FunctionPart };

/** The boxes with those of their functions below them; functions are known of all messages in focus only. */
function withFunctions(store: Store, rows: BoxRow[]): Row[] {
  if (store.narrowed()) return rows;
  return rows.flatMap((row): Row[] => [
    row,
    ...(store.data.page.diagnosis.causes[row.cause]!.functions ?? [])
      .filter((f) => f.spread_ns)
      .slice(0, 3)
      .map((fn): Row => {
        const [low, q1, median, q3, high, most] = fn.spread_ns!;
        return {
          cause: row.cause,
          n: store.data.focus.length,
          hit: fn.messages,
          low,
          q1,
          median,
          q3,
          high,
          least: low,
          most,
          mean: fn.deviation_ns,
          fn: fn,
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
    data = store.data,
    looks = store.looks,
    causes = boxes(store),
    rows = withFunctions(store, causes);
  const over = useRef(-1),
    latest = useRef(rows),
    tipOf = useRef<(r: Row) => [string, string[]]>(() => ["", []]);
  latest.current = rows;
  if (!data.focus.length || !data.page.diagnosis.causes.length) return null;
  const without = whatIf(data.page.diagnosis),
    functionRows = rows.filter((r) => r.fn).length;
  const what = (r: Row) => (r.fn ? undefined : without?.of.get(r.cause));
  const lede =
    "For each cause how much of it the messages in focus have" +
    (data.page.messages.reference_ns ? " above the reference mean" : "") +
    ": box from the 25th to the 75th percentile with the median in it, whiskers to the 5th and 95th, a dot at the most. " +
    (functionRows
      ? "Below a cause its functions" +
        (rows.some((r) => r.fn && !r.fn.waits)
          ? ", from samples: each message's time in the cause, divided as its samples are. "
          : ", by where the thread slept. ")
      : "") +
    (without?.of.size
      ? "What-if: the " +
        without.key +
        " of all messages (" +
        duration(data.page.diagnosis.latency_ns[without.key]!) +
        ") as a replay predicts it without the cause, with its 95 % interval, for the largest causes that can be taken out. docs/ideal.md says how exact such predictions were in the lab. "
      : "") +
    (store.narrowed() ? "Of the " + plural(rows[0]?.n ?? 0, "message") + " in focus that the choice leaves. " : "") +
    "Press a row to see its messages alone. Axis: linear near zero, logarithmic beyond 1 µs.";
  const column = (w: number) => (without?.of.size && w >= WIDE ? 172 : 0),
    left = (w: number) => Math.min(300, w * 0.36),
    right = (w: number) => 128 + column(w);
  // A symmetric log axis: deviations may be negative.
  const bend = 1000,
    bent = (v: number) => Math.sign(v) * Math.log1p(Math.abs(v) / bend);
  const from = Math.min(0, ...rows.map((r) => r.least)),
    to = Math.max(1, ...rows.map((r) => r.most)) * 1.1;
  const x = (v: number, p: Plot) =>
    left(p.width) + ((bent(v) - bent(from)) / (bent(to) - bent(from))) * (p.width - left(p.width) - right(p.width));
  const draw = (ctx: CanvasRenderingContext2D, plot: Plot) => {
    const bottom = rows.length * ROW + 8,
      end = plot.width - column(plot.width);
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    ctx.lineWidth = 1;
    let last = -Infinity;
    for (const mark of ticks(from, to)) {
      const px = x(mark, plot);
      ctx.strokeStyle = ink("line");
      line(ctx, crisp(px), 4, crisp(px), bottom);
      if (px - last < 56) continue;
      last = px;
      ctx.fillStyle = ink("soft");
      ctx.fillText(mark ? tick(mark) : "0", px, bottom + 6);
    }
    rows.forEach((row, k) => {
      const y = k * ROW + ROW / 2 + 4,
        color = looks.color(row.cause),
        faint = state.cause !== null && state.cause !== row.cause,
        indent = row.fn ? 16 : 0,
        half = row.fn ? 5 : 8;
      if (k === over.current && document.activeElement === plot.canvas) {
        ctx.fillStyle = ink("panel");
        ctx.fillRect(0, y - ROW / 2, plot.width, ROW);
      }
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      ctx.fillStyle = ink("ink");
      ctx.globalAlpha = faint ? 0.45 : 1;
      ctx.fillText(
        fit(ctx, row.fn ? fnName(row.fn) : looks.name(row.cause), left(plot.width) - 14 - indent),
        indent,
        y - 6,
      );
      ctx.fillStyle = ink("soft");
      ctx.fillText(
        fit(
          ctx,
          row.fn
            ? row.fn.waits
              ? "waited in it"
              : "function, " + plural(row.fn.samples[0], "sample")
            : data.page.categories[data.page.diagnosis.causes[row.cause]!.category]!,
          left(plot.width) - 14 - indent,
        ),
        indent,
        y + 8,
      );
      ctx.strokeStyle = color;
      ctx.fillStyle = color;
      ctx.lineWidth = 1.4;
      line(ctx, x(row.low, plot), y, x(row.q1, plot), y);
      line(ctx, x(row.q3, plot), y, x(row.high, plot), y);
      for (const v of [row.low, row.high]) line(ctx, x(v, plot), y - 5, x(v, plot), y + 5);
      ctx.globalAlpha *= 0.35;
      ctx.fillRect(x(row.q1, plot), y - half, Math.max(1, x(row.q3, plot) - x(row.q1, plot)), 2 * half);
      ctx.globalAlpha = faint ? 0.45 : 1;
      ctx.strokeRect(x(row.q1, plot), y - half, Math.max(1, x(row.q3, plot) - x(row.q1, plot)), 2 * half);
      ctx.lineWidth = 3;
      line(ctx, x(row.median, plot), y - half, x(row.median, plot), y + half);
      ctx.beginPath();
      ctx.arc(x(row.most, plot), y, 2.5, 0, 7);
      ctx.fill();
      ctx.textAlign = "right";
      ctx.fillStyle = ink("soft");
      ctx.fillText(more(row.median), end, y - 6);
      ctx.fillText(count(row.hit) + " hit, " + percent(row.hit / row.n), end, y + 8);
      const prediction = what(row);
      if (column(plot.width) && prediction) {
        ctx.fillStyle = ink("ink");
        ctx.fillText(without!.key + " without it " + duration(prediction.ns), plot.width, y - 6);
        ctx.fillStyle = ink("soft");
        ctx.fillText(duration(prediction.ci[0]) + " … " + duration(prediction.ci[1]), plot.width, y + 8);
      }
      ctx.globalAlpha = 1;
    });
  };
  const tip = (row: Row): [string, string[]] => {
    const prediction = what(row),
      spread = [
        "25 % to 75 %: " + duration(row.q1) + " … " + duration(row.q3),
        "5 % to 95 %: " + duration(row.low) + " … " + duration(row.high),
        "most " + duration(row.most),
      ];
    if (row.fn)
      return [
        short(fnName(row.fn), 200) + ", of " + looks.title(row.cause),
        [
          "median " + more(row.median) + ", mean " + more(row.mean),
          ...spread,
          count(row.hit) +
            " of " +
            count(row.n) +
            (row.fn.waits ? " messages waited in it" : " messages have a sample in it"),
        ],
      ];
    return [
      looks.title(row.cause),
      [
        "median " + more(row.median) + ", mean " + more(row.mean),
        ...spread,
        count(row.hit) + " of " + count(row.n) + " messages have more than usual",
        ...(prediction
          ? [
              "without it, as predicted: " +
                without!.key +
                " " +
                duration(prediction.ns) +
                " (" +
                duration(prediction.ci[0]) +
                " … " +
                duration(prediction.ci[1]) +
                ")",
            ]
          : []),
      ],
    ];
  };
  const choose = (row: Row | undefined) => {
    if (row) store.set(row.fn ? { fn: row.fn.name } : { cause: store.state.cause === row.cause ? null : row.cause });
  };
  const setup = (plot: Plot) => {
    const rowAt = (event: MouseEvent) => {
      const box = plot.canvas.getBoundingClientRect();
      return latest.current[Math.floor((event.clientY - box.top - 4) / ROW)];
    };
    plot.canvas.style.cursor = "pointer";
    plot.canvas.addEventListener("click", (e) => choose(rowAt(e)));
    plot.canvas.addEventListener("pointermove", (event) => {
      const row = rowAt(event);
      if (row) showTip(event.clientX, event.clientY, ...tipOf.current(row));
      else hideTip();
    });
    plot.canvas.addEventListener("pointerleave", hideTip);
    plot.canvas.addEventListener("blur", () => {
      hideTip();
      plot.redraw();
    });
    plot.canvas.addEventListener("keydown", (event) => {
      const rows = latest.current;
      if (event.key === "Enter") choose(rows[over.current]);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        over.current = Math.max(0, Math.min(rows.length - 1, over.current + (event.key === "ArrowDown" ? 1 : -1)));
        plot.redraw();
        const row = rows[over.current],
          box = plot.canvas.getBoundingClientRect();
        if (row) {
          const [title, lines] = tipOf.current(row);
          showTip(box.left + left(plot.width), box.top + (over.current + 1) * ROW, title, lines);
          say(title + ", " + lines.join(", "));
        }
      } else return;
      event.preventDefault();
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
              (functionRows ? " and " + plural(functionRows, "function") : "") +
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
                  {rows.map((row) => {
                    const prediction = what(row);
                    return (
                      <tr
                        class={row.fn ? "less" : ""}
                        data-rank={row.fn ? undefined : row.cause + 1}
                        data-without={prediction?.ns}
                      >
                        <td>{row.fn ? short(fnName(row.fn), 120) : looks.title(row.cause)}</td>
                        {[row.median, row.mean, row.low, row.q1, row.q3, row.high, row.most].map((v) => (
                          <td class="num">{duration(v)}</td>
                        ))}
                        <td class="num">{count(row.hit) + " of " + count(row.n)}</td>
                        {without?.of.size ? (
                          <>
                            <td class="num">{prediction ? duration(prediction.ns) : ""}</td>
                            <td class="num">
                              {prediction ? duration(prediction.ci[0]) + " … " + duration(prediction.ci[1]) : ""}
                            </td>
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
            {rows.map(({ f: fn, i }) => (
              <tr>
                <td class="what">
                  <button type="button" class="link" onClick={() => store.set({ fn: fn.name })}>
                    {fn.name}
                  </button>
                  <small>{fn.module}</small>
                </td>
                <td>{store.looks.name(i)}</td>
                <td class="num">{more(fn.deviation_ns)}</td>
                <td class="num">{duration(fn.ci95_ns[0]) + " … " + duration(fn.ci95_ns[1])}</td>
                <td class="num">{count(fn.messages)}</td>
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
