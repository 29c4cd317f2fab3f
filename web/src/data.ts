// Unpacks the page's data: base64 of gzip in script elements, each unpacked when it is first needed.
import type { Beside, Bundle, Page } from "./types";

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const quick = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (quick) return quick.call(Uint8Array, text);
  const raw = atob(text),
    bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unpack(name: string): Promise<ArrayBuffer | null> {
  const element = document.getElementById("data-" + name);
  if (!element) return null;
  const packed = fromBase64(element.textContent ?? "");
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Whether the page has an element of data. */
export function has(name: string): boolean {
  return document.getElementById("data-" + name) !== null;
}

export async function json<T>(name: string): Promise<T> {
  const bytes = await unpack(name);
  if (!bytes) throw new Error("this page has no data: it is the empty page of the build");
  return JSON.parse(new TextDecoder().decode(bytes)) as T;
}

type Numbers = Float64Array | Uint32Array | Uint16Array | Uint8Array;

async function column(name: string, type: "u8" | "u16" | "u32" | "f64"): Promise<Numbers> {
  const bytes = (await unpack(name)) ?? new ArrayBuffer(0);
  return type === "u8"
    ? new Uint8Array(bytes)
    : type === "u16"
      ? new Uint16Array(bytes)
      : type === "u32"
        ? new Uint32Array(bytes)
        : new Float64Array(bytes);
}

/** Not in focus; in focus, none of the causes. */
export const NOT_IN_FOCUS = 255,
  NO_CAUSE = 254;

/** Messages as columns, a row each, by rising id. */
export interface Rows {
  /** Null where every message has a row: the row is the id. */
  ids: Uint32Array | null;
  /** ns; NaN where the leg is not complete. */
  latency: Float64Array;
  /** ns since the beginning of the run. */
  arrival: Float64Array;
  flow: Numbers;
  thread: Numbers;
  class: Numbers;
  /** Dominant cause: NOT_IN_FOCUS, NO_CAUSE or a place in the causes. */
  cause: Uint8Array;
}

/** A part of the balloon plot: ids, ns, and one flow, thread or class or none. */
export interface Part {
  from: number;
  to: number;
  low: number;
  high: number;
  by: "flow" | "thread" | "class" | "all";
  value: number;
}

/**
 * The page's messages. A file has them all; a served page of a large run has those in focus and a sample of the others,
 * and fetches those of a part when that is looked at. All indexes are rows; `id` and `row` translate.
 */
export class Data implements Rows {
  ids!: Uint32Array | null;
  latency!: Float64Array;
  arrival!: Float64Array;
  flow!: Numbers;
  thread!: Numbers;
  class!: Numbers;
  cause!: Uint8Array;
  /** Rows. */
  n = 0;
  /** Messages of the run. */
  readonly total: number;
  /** Of these, complete in the leg. */
  readonly complete: number;
  /** Rows in focus, ascending, and their times by cause: a row of `page.messages.causes` each. */
  focus: Uint32Array = new Uint32Array();
  /** Complete latencies of the rows of the whole plot, ascending. */
  readonly sorted: Float64Array;
  /** The row of the slowest message; -1 where none is complete. */
  slowest = -1;
  /** Changes with the rows. */
  version = 0;
  /** Messages of the part that is shown, of which all or a sample have rows; null: the whole plot. */
  sight: number | null = null;
  private readonly slowestId: number;
  private shown: { part: Part; whole: boolean } | null = null;
  private readonly focusIds: Uint32Array;
  /** (ns, share of the messages as slow or slower), of the leg. */
  private readonly curve: [number, number][];

  constructor(
    readonly page: Page,
    private base: Rows,
    focusIds: Uint32Array,
    readonly times: Numbers,
  ) {
    const columns = page.messages;
    this.total = columns.count;
    this.focusIds = focusIds;
    this.curve = page.curves.find((c) => c.kind === "leg" && c.name === page.diagnosis.leg)?.points ?? [];
    const { latency } = base;
    let slowest = -1,
      complete = 0;
    for (let i = 0; i < latency.length; i++)
      if (!Number.isNaN(latency[i])) {
        complete++;
        if (slowest < 0 || latency[i]! > latency[slowest]!) slowest = i;
      }
    this.complete = base.ids ? columns.complete : complete;
    this.sorted = new Float64Array(complete);
    for (let i = 0, k = 0; i < latency.length; i++) if (!Number.isNaN(latency[i])) this.sorted[k++] = latency[i]!;
    this.sorted.sort();
    this.slowestId = slowest < 0 ? -1 : base.ids ? base.ids[slowest]! : slowest;
    this.use(base);
  }
  /** Whether only a part of the messages has rows. */
  get sampled(): boolean {
    return this.base.ids !== null;
  }
  id(row: number): number {
    return row < 0 || !this.ids ? row : this.ids[row]!;
  }
  /** The row of a message; -1 where it has none. */
  row(id: number): number {
    if (!this.ids) return id >= 0 && id < this.n ? id : -1;
    const at = this.from(id);
    return this.ids[at] === id ? at : -1;
  }
  /** The first row of an id or above; n where there is none. */
  from(id: number): number {
    if (!this.ids) return Math.max(0, Math.min(this.n, Math.ceil(id)));
    let lo = 0,
      hi = this.n;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.ids[mid]! < id) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }
  /** The share of all messages that are no slower; of a sample, by the curve of all. */
  rank(ns: number): number {
    if (!this.sampled) return rankOf(this.sorted, ns);
    let lo = 0,
      hi = this.curve.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.curve[mid]![0] <= ns) lo = mid + 1;
      else hi = mid;
    }
    return lo < this.curve.length ? 1 - this.curve[lo]![1] : 1;
  }
  /** The latency below which a share of all messages is. */
  quantile(share: number): number {
    if (!this.sampled)
      return this.sorted[Math.min(this.sorted.length - 1, Math.max(0, Math.ceil(share * this.sorted.length) - 1))]!;
    return (this.curve.find(([, slower]) => slower <= 1 - share + 1e-9) ?? this.curve[this.curve.length - 1])?.[0] ?? 1;
  }

  /** Makes a part's messages rows, or goes back to the whole plot's. Gives whether anything changed. */
  async look(part: Part | null): Promise<boolean> {
    if (!this.sampled) return false;
    const asked = {};
    this.asking = asked;
    if (!part) {
      const was = this.shown !== null;
      this.forget();
      return was;
    }
    if (this.shown && (same(this.shown.part, part) || (this.shown.whole && within(part, this.shown.part))))
      return false;
    // Rows of another part would look as if there were more messages than elsewhere.
    if (this.shown && !within(part, this.shown.part)) this.forget();
    const { rows, sight } = await points(part);
    if (asked !== this.asking) return false;
    this.shown = { part, whole: rows.latency.length === sight };
    this.sight = sight;
    this.use(merged(this.base, rows));
    return true;
  }
  /** Gives a message a row that stays. Gives whether it was given one now. */
  async pin(id: number): Promise<boolean> {
    if (!this.sampled || this.row(id) >= 0) return false;
    const { rows } = await points({ from: id, to: id, low: 0, high: Number.MAX_SAFE_INTEGER, by: "all", value: 0 });
    if (!rows.latency.length || this.row(id) >= 0) return false;
    this.base = merged(this.base, rows);
    this.use(merged(this, rows));
    return true;
  }
  private asking: object = {};
  private forget(): void {
    this.shown = null;
    this.sight = null;
    this.use(this.base);
  }
  private use(rows: Rows): void {
    this.ids = rows.ids;
    this.latency = rows.latency;
    this.arrival = rows.arrival;
    this.flow = rows.flow;
    this.thread = rows.thread;
    this.class = rows.class;
    this.cause = rows.cause;
    this.n = rows.latency.length;
    this.focus = this.ids ? this.focusIds.map((id) => this.row(id)) : this.focusIds;
    this.slowest = this.row(this.slowestId);
    this.version++;
  }
}

const same = (a: Part, b: Part) => JSON.stringify(a) === JSON.stringify(b);
/** Whether what a part asks for is in another. */
const within = (inner: Part, outer: Part) =>
  inner.from >= outer.from &&
  inner.to <= outer.to &&
  inner.low >= outer.low &&
  inner.high <= outer.high &&
  (outer.by === "all" || (inner.by === outer.by && inner.value === outer.value));

/** Both, each message once. */
function merged(base: Rows, added: Rows): Rows {
  const x = base.ids!,
    y = added.ids!,
    most = x.length + y.length;
  const out = {
    ids: new Uint32Array(most),
    latency: new Float64Array(most),
    arrival: new Float64Array(most),
    flow: new Uint32Array(most),
    thread: new Uint32Array(most),
    class: new Uint32Array(most),
    cause: new Uint8Array(most),
  };
  let row = 0;
  for (let i = 0, j = 0; i < x.length || j < y.length; row++) {
    const first = j >= y.length || (i < x.length && x[i]! <= y[j]!);
    const source = first ? base : added,
      at = first ? i : j;
    if (first) {
      if (j < y.length && x[i] === y[j]) j++;
      i++;
    } else j++;
    out.ids[row] = source.ids![at]!;
    out.latency[row] = source.latency[at]!;
    out.arrival[row] = source.arrival[at]!;
    out.flow[row] = source.flow[at]!;
    out.thread[row] = source.thread[at]!;
    out.class[row] = source.class[at] ?? 0;
    out.cause[row] = source.cause[at]!;
  }
  return Object.fromEntries(
    Object.entries(out).map(([name, column]) => [name, column.slice(0, row)]),
  ) as unknown as Rows;
}

/** The messages of a part, from the server: html/points.rs says how they are written. */
async function points(part: Part): Promise<{ rows: Rows; sight: number }> {
  const answer = await fetch(
    ["points", part.from, part.to, Math.floor(part.low), Math.ceil(part.high), part.by, part.value].join("/") +
      location.search,
  );
  if (!answer.ok) throw new Error(await answer.text());
  const bytes = await answer.arrayBuffer(),
    [count, sight] = new Uint32Array(bytes, 0, 2) as unknown as [number, number];
  const floats = (k: number) => new Float64Array(bytes, 8 + 8 * count * k, count),
    numbers = (k: number) => new Uint32Array(bytes, 8 + 16 * count + 4 * count * k, count);
  return {
    sight,
    rows: {
      latency: floats(0),
      arrival: floats(1),
      ids: numbers(0),
      flow: numbers(1),
      thread: numbers(2),
      class: numbers(3),
      cause: new Uint8Array(count).fill(NOT_IN_FOCUS),
    },
  };
}

/** The part of the messages that are no slower than v. */
export function rankOf(sorted: Float64Array, ns: number): number {
  let lo = 0,
    hi = sorted.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (sorted[mid]! <= ns) lo = mid + 1;
    else hi = mid;
  }
  return sorted.length ? lo / sorted.length : 0;
}

export async function load(): Promise<Data> {
  const page = await json<Page>("page"),
    columns = page.messages;
  const [ids, latencies, arrivals, flow, thread, classes, cause, focus, times] = await Promise.all([
    column("ids", "u32"),
    column("latency", columns.latency_type),
    column("arrival", columns.arrival_type),
    column("flow", columns.flow_type),
    column("thread", columns.thread_type),
    column("class", "u16"),
    column("cause", "u8"),
    column("focus", "u32"),
    column("times", "u32"),
  ]);
  const count = latencies.length,
    latency = new Float64Array(count),
    arrival = new Float64Array(count);
  const missing = columns.latency_type === "u32" ? 0xffffffff : NaN;
  let at = 0;
  for (let i = 0; i < count; i++) {
    const ns = latencies[i]!;
    latency[i] = ns === missing ? NaN : ns;
    at = columns.arrival_type === "u32" ? at + arrivals[i]! : arrivals[i]!;
    arrival[i] = at;
  }
  const rows: Rows = {
    ids: columns.sampled ? (ids as Uint32Array) : null,
    latency,
    arrival,
    flow,
    thread,
    class: classes,
    cause: cause as Uint8Array,
  };
  return new Data(page, rows, focus as Uint32Array, times);
}

/** Of a message that was asked for, also its neighbours by latency. */
type Answer = Bundle & { beside?: Beside | null };
const bundles = new Map<number | string, Promise<Answer>>();

/** Where a message's timeline is: the place of its element, or -1. */
export function place(page: Page, id: number): number {
  return page.timelines.ids.findIndex((ids) => ids.includes(id));
}

/** A message's timeline with what it refers to; null where the page does not have it. */
export async function timelineOf(page: Page, id: number): Promise<Answer | null> {
  const at = place(page, id);
  const key = at >= 0 ? at : "message-" + id;
  if (at < 0 && !page.served) return null;
  let bundle = bundles.get(key);
  if (!bundle) {
    bundle = at >= 0 ? json<Answer>("timelines-" + at) : asked(id);
    bundles.set(key, bundle);
    bundle.catch(() => bundles.delete(key));
  }
  return bundle;
}

async function asked(id: number): Promise<Answer> {
  const answer = await fetch("message/" + id + location.search);
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as Answer;
}
