// View 3: box plots of what each cause took from each message in focus (NSight Figures 4, 13, 15, 18), by deviation or by messages hit.
import { Chart, crisp, fit, hideTip, line, linearTicks, showTip, type Plot } from "../chart";
import { Section, Switch } from "../parts";
import { useStore, type Store } from "../store";
import { ink } from "../theme";
import { count, duration, more, percent, plural, tick } from "../units";

export interface BoxRow { cause: number; n: number; hit: number; low: number; q1: number; median: number; q3: number; high: number; least: number; most: number; mean: number }

/** Of each cause the rows of the messages in focus, by their time of it, ascending: made once, so that a choice needs no sorting. */
const ascending = new WeakMap<Store, Map<number, Uint32Array>>();
function byTime(store: Store, cause: number): Uint32Array {
  const { focus, times, page } = store.data;
  let all = ascending.get(store);
  if (!all) ascending.set(store, (all = new Map()));
  let rows = all.get(cause);
  if (!rows) {
    // Time and row in one number, which sorts without a function: 32 bits and 21.
    const packed = new Float64Array(focus.length);
    for (let k = 0; k < packed.length; k++) packed[k] = times[k * page.messages.causes + cause]! * 2 ** 21 + k;
    rows = Uint32Array.from(packed.sort(), (v) => v % 2 ** 21);
    all.set(cause, rows);
  }
  return rows;
}

/** The time of each cause above its reference mean, over the messages in focus that the choice leaves. */
export function boxes(store: Store): BoxRow[] {
  const d = store.data, m = d.page.messages, left = new Uint8Array(d.focus.length);
  let n = 0;
  for (let k = 0; k < left.length; k++) if (store.chosen(d.focus[k]!)) { left[k] = 1; n++; }
  const out: BoxRow[] = [];
  for (let c = 0; c < m.causes && n > 0; c++) {
    if (!store.looks.named(c)) continue;
    const usual = m.reference_ns?.[c] ?? 0, values = new Float64Array(n);
    let hit = 0, sum = 0, i = 0;
    for (const k of byTime(store, c)) if (left[k]) { const v = d.times[k * m.causes + c]! - usual; values[i++] = v; sum += v; if (v > 0) hit++; }
    const at = (q: number) => values[Math.min(values.length - 1, Math.max(0, Math.ceil(q * values.length) - 1))]!;
    out.push({ cause: c, n: values.length, hit, low: at(0.05), q1: at(0.25), median: at(0.5), q3: at(0.75), high: at(0.95), least: values[0]!, most: values[values.length - 1]!, mean: sum / values.length });
  }
  const by = store.state.boxes;
  return out.sort((a, b) => (by === "messages" ? b.hit - a.hit || b.median - a.median : b.median - a.median || b.mean - a.mean)).filter((r) => r.hit > 0).slice(0, 24);
}

const ROW = 30;

export function Boxes({ store }: { store: Store }) {
  const state = useStore(store), d = store.data, looks = store.looks, rows = boxes(store);
  if (!d.focus.length || !d.page.diagnosis.causes.length) return null;
  const lede = "For each cause how much of it the messages in focus have" + (d.page.messages.reference_ns ? " above the reference mean" : "") + ": box from the 25th to the 75th percentile with the median in it, whiskers to the 5th and 95th, a dot at the most. " +
    (store.narrowed() ? "Of the " + plural(rows[0]?.n ?? 0, "message") + " in focus that the choice leaves. " : "") + "Press a row to see its messages alone. Axis: linear near zero, logarithmic beyond 1 µs.";
  const left = (w: number) => Math.min(300, w * 0.36), right = 128;
  // A symmetric log axis: deviations may be negative.
  const bend = 1000, s = (v: number) => Math.sign(v) * Math.log1p(Math.abs(v) / bend);
  const from = Math.min(0, ...rows.map((r) => r.least)), to = Math.max(1, ...rows.map((r) => r.most)) * 1.1;
  const x = (v: number, p: Plot) => left(p.width) + ((s(v) - s(from)) / (s(to) - s(from))) * (p.width - left(p.width) - right);
  const draw = (g: CanvasRenderingContext2D, p: Plot) => {
    const bottom = rows.length * ROW + 8;
    g.textBaseline = "top"; g.textAlign = "center"; g.lineWidth = 1;
    let last = -Infinity;
    for (const v of ticks(from, to)) {
      const px = x(v, p);
      g.strokeStyle = ink("line"); line(g, crisp(px), 4, crisp(px), bottom);
      if (px - last < 56) continue;
      last = px;
      g.fillStyle = ink("soft"); g.fillText(v ? tick(v) : "0", px, bottom + 6);
    }
    rows.forEach((r, k) => {
      const y = k * ROW + ROW / 2 + 4, color = looks.color(r.cause), faint = state.cause !== null && state.cause !== r.cause;
      g.textBaseline = "middle"; g.textAlign = "left"; g.fillStyle = ink("ink"); g.globalAlpha = faint ? 0.45 : 1;
      g.fillText(fit(g, looks.name(r.cause), left(p.width) - 14), 0, y - 6);
      g.fillStyle = ink("soft");
      g.fillText(fit(g, d.page.diagnosis.causes[r.cause]!.category, left(p.width) - 14), 0, y + 8);
      g.strokeStyle = color; g.fillStyle = color; g.lineWidth = 1.4;
      line(g, x(r.low, p), y, x(r.q1, p), y); line(g, x(r.q3, p), y, x(r.high, p), y);
      for (const v of [r.low, r.high]) line(g, x(v, p), y - 5, x(v, p), y + 5);
      g.globalAlpha *= 0.35; g.fillRect(x(r.q1, p), y - 8, Math.max(1, x(r.q3, p) - x(r.q1, p)), 16); g.globalAlpha = faint ? 0.45 : 1;
      g.strokeRect(x(r.q1, p), y - 8, Math.max(1, x(r.q3, p) - x(r.q1, p)), 16);
      g.lineWidth = 3; line(g, x(r.median, p), y - 8, x(r.median, p), y + 8);
      g.beginPath(); g.arc(x(r.most, p), y, 2.5, 0, 7); g.fill();
      g.textAlign = "right"; g.fillStyle = ink("soft");
      g.fillText(more(r.median), p.width, y - 6);
      g.fillText(count(r.hit) + " hit, " + percent(r.hit / r.n), p.width, y + 8);
      g.globalAlpha = 1;
    });
  };
  const setup = (p: Plot) => {
    const row = (e: MouseEvent) => { const box = p.canvas.getBoundingClientRect(); return boxes(store)[Math.floor((e.clientY - box.top - 4) / ROW)]; };
    p.canvas.style.cursor = "pointer";
    p.canvas.addEventListener("click", (e) => { const r = row(e); if (r) store.set({ cause: store.state.cause === r.cause ? null : r.cause }); });
    p.canvas.addEventListener("pointermove", (e) => {
      const r = row(e);
      if (!r) { hideTip(); return; }
      showTip(e.clientX, e.clientY, looks.title(r.cause), ["median " + more(r.median) + ", mean " + more(r.mean), "25 % to 75 %: " + duration(r.q1) + " … " + duration(r.q3), "5 % to 95 %: " + duration(r.low) + " … " + duration(r.high), "most " + duration(r.most), count(r.hit) + " of " + count(r.n) + " messages have more than usual"]);
    });
    p.canvas.addEventListener("pointerleave", hideTip);
  };
  return <Section id="boxes" title="What each cause took from each message" lede={lede}
    aside={<Switch label="Order of the causes" value={state.boxes} options={[["deviation", "By median"], ["messages", "By messages hit"]]} choose={(b) => store.set({ boxes: b })} />}>
    {rows.length ? <>
      <Chart height={rows.length * ROW + 34} label={"Box plots of " + rows.length + " causes over " + count(rows[0]!.n) + " messages in focus. The same as a table follows."} draw={draw} setup={setup} plain />
      <details><summary>The same as a table</summary><div class="scroll"><table><thead><tr>{["Cause", "Median", "Mean", "p5", "p25", "p75", "p95", "Most", "Messages hit"].map((h, i) => <th class={i ? "num" : ""}>{h}</th>)}</tr></thead>
        <tbody>{rows.map((r) => <tr><td>{looks.title(r.cause)}</td>{[r.median, r.mean, r.low, r.q1, r.q3, r.high, r.most].map((v) => <td class="num">{duration(v)}</td>)}<td class="num">{count(r.hit) + " of " + count(r.n)}</td></tr>)}</tbody></table></div></details>
    </> : <p class="lede">No message in focus that the choice leaves has more of a cause than usual.</p>}
    <Functions store={store} />
  </Section>;
}

/** Beside the causes, their functions: NSight's boxes by function, where samples tell. */
function Functions({ store }: { store: Store }) {
  const causes = store.data.page.diagnosis.causes, { cause } = store.state;
  const rows = causes.flatMap((c, i) => (cause === null || cause === i ? (c.functions ?? []).map((f) => ({ f, c, i })) : [])).sort((a, b) => b.f.deviation_ns - a.f.deviation_ns).slice(0, 12);
  if (!rows.length) return null;
  return <details class="functions-of"><summary>{"By function (" + rows.length + "), from samples"}</summary><div class="scroll"><table><thead><tr><th>Function</th><th>Of the cause</th><th class="num">More than usual</th><th class="num">95 % interval</th><th class="num">Messages</th></tr></thead>
    <tbody>{rows.map(({ f, i }) => <tr><td class="what"><button type="button" class="link" onClick={() => store.set({ fn: f.name })}>{f.name}</button><small>{f.module}</small></td><td>{store.looks.name(i)}</td><td class="num">{more(f.deviation_ns)}</td><td class="num">{duration(f.ci95_ns[0]) + " … " + duration(f.ci95_ns[1])}</td><td class="num">{count(f.messages)}</td></tr>)}</tbody></table></div></details>;
}

function ticks(from: number, to: number): number[] {
  const out = [0];
  for (let e = 3; 10 ** e <= Math.max(to, -from); e++) { if (10 ** e <= to) out.push(10 ** e); if (-(10 ** e) >= from) out.unshift(-(10 ** e)); }
  return out.length > 2 ? out : linearTicks(from, to, 5);
}
