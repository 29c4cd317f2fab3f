// Unpacks the page's data: base64 of gzip in script elements, each unpacked when it is first needed.
import type { Bundle, Page } from "./types";

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const quick = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (quick) return quick.call(Uint8Array, text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
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

async function json<T>(name: string): Promise<T> {
  const bytes = await unpack(name);
  if (!bytes) throw new Error("this page has no data: it is the empty page of the build");
  return JSON.parse(new TextDecoder().decode(bytes)) as T;
}

type Numbers = Float64Array | Uint32Array | Uint16Array | Uint8Array;

async function column(name: string, type: "u8" | "u16" | "u32" | "f64"): Promise<Numbers> {
  const bytes = (await unpack(name)) ?? new ArrayBuffer(0);
  return type === "u8" ? new Uint8Array(bytes) : type === "u16" ? new Uint16Array(bytes) : type === "u32" ? new Uint32Array(bytes) : new Float64Array(bytes);
}

/** Not in focus; in focus, none of the causes. */
export const NOT_IN_FOCUS = 255, NO_CAUSE = 254;

export interface Data {
  page: Page;
  n: number;
  /** ns; NaN where the leg is not complete. */
  latency: Float64Array;
  /** ns since the beginning of the run. */
  arrival: Float64Array;
  flow: Numbers;
  thread: Numbers;
  class: Numbers;
  /** Dominant cause by message: NOT_IN_FOCUS, NO_CAUSE or a place in the causes. */
  cause: Numbers;
  /** Ids in focus, ascending, and their times by cause: a row of `page.messages.causes` each. */
  focus: Numbers;
  times: Numbers;
  /** Complete latencies, ascending. */
  sorted: Float64Array;
  slowest: number;
}

export async function load(): Promise<Data> {
  const page = await json<Page>("page"), m = page.messages;
  const [latencies, arrivals, flow, thread, classes, cause, focus, times] = await Promise.all([
    column("latency", m.latency_type), column("arrival", m.arrival_type), column("flow", m.flow_type), column("thread", m.thread_type),
    column("class", "u16"), column("cause", "u8"), column("focus", "u32"), column("times", "u32"),
  ]);
  const n = m.count, latency = new Float64Array(n), arrival = new Float64Array(n);
  const missing = m.latency_type === "u32" ? 0xffffffff : NaN;
  let slowest = -1, complete = 0, at = 0;
  for (let i = 0; i < n; i++) {
    const ns = latencies![i]!;
    latency[i] = ns === missing ? NaN : ns;
    if (latency[i] === latency[i]) {
      complete++;
      if (slowest < 0 || ns > latency[slowest]!) slowest = i;
    }
    at = m.arrival_type === "u32" ? at + arrivals![i]! : arrivals![i]!;
    arrival[i] = at;
  }
  const sorted = new Float64Array(complete);
  for (let i = 0, k = 0; i < n; i++) if (latency[i] === latency[i]) sorted[k++] = latency[i]!;
  sorted.sort();
  return { page, n, latency, arrival, flow: flow!, thread: thread!, class: classes!, cause: cause!, focus: focus!, times: times!, sorted, slowest };
}

const bundles = new Map<number | string, Promise<Bundle>>();

/** Where a message's timeline is: the place of its element, or -1. */
export function place(page: Page, id: number): number {
  return page.timelines.ids.findIndex((ids) => ids.includes(id));
}

/** A message's timeline with what it refers to; null where the page does not have it. */
export async function timelineOf(page: Page, id: number): Promise<Bundle | null> {
  const at = place(page, id);
  const key = at >= 0 ? at : "message-" + id;
  if (at < 0 && !page.served) return null;
  let bundle = bundles.get(key);
  if (!bundle) {
    bundle = at >= 0 ? json<Bundle>("timelines-" + at) : asked(id);
    bundles.set(key, bundle);
    bundle.catch(() => bundles.delete(key));
  }
  return bundle;
}

async function asked(id: number): Promise<Bundle> {
  const answer = await fetch("message/" + id + location.search);
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as Bundle;
}
