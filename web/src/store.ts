// The page's one store: the data, what is chosen, and the URL fragment that says it, so that a view can be sent.
import { useEffect, useState } from "preact/hooks";
import { NOT_IN_FOCUS, type Data } from "./data";
import { Looks } from "./theme";

export type Filter = { by: "flow" | "thread" | "class"; value: number };
export interface State {
  /** Place of the chosen cause. */
  cause: number | null;
  message: number | null;
  /** Latencies, ns. */
  range: [number, number] | null;
  /** Part of the balloon plot's x axis that is shown: ids. */
  zoom: [number, number] | null;
  filter: Filter | null;
  /** A function that is looked for. */
  fn: string;
  x: "order" | "time";
  y: "log" | "linear";
  boxes: "deviation" | "messages";
}
const initial: State = { cause: null, message: null, range: null, zoom: null, filter: null, fn: "", x: "order", y: "log", boxes: "deviation" };

export class Store {
  state: State = { ...initial };
  readonly looks: Looks;
  private writing = 0;
  private readonly listeners = new Set<() => void>();
  constructor(readonly data: Data) {
    this.looks = new Looks(data.page);
    this.read();
    addEventListener("hashchange", () => { if (location.hash.slice(1) !== this.fragment()) { this.read(); this.tell(); } });
  }
  set(patch: Partial<State>): void {
    this.state = { ...this.state, ...patch };
    // A zoom is many steps, and some browsers limit how often a page may change its address: it is written when the steps end.
    clearTimeout(this.writing);
    if (Object.keys(patch).join() === "zoom") this.writing = window.setTimeout(() => this.write(), 150); else this.write();
    this.tell();
  }
  private write(): void {
    const hash = this.fragment();
    // The view does not depend on it.
    try { history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search); } catch { /* stays as it was */ }
  }
  listen(f: () => void): () => void { this.listeners.add(f); return () => { this.listeners.delete(f); }; }
  private tell(): void { this.listeners.forEach((f) => f()); }

  /** Whether a message is among those that flow, thread, class, latency and order leave. */
  matches(i: number): boolean {
    const { filter, range, zoom } = this.state, d = this.data;
    if (range && !(d.latency[i]! >= range[0] && d.latency[i]! <= range[1])) return false;
    if (zoom && !(i >= zoom[0] && i <= zoom[1])) return false;
    return !filter || (filter.by === "flow" ? d.flow : filter.by === "thread" ? d.thread : d.class)[i] === filter.value;
  }
  /** Whether it is also of the chosen cause. */
  chosen(i: number): boolean {
    const { cause } = this.state;
    return this.matches(i) && (cause === null || this.data.cause[i] === cause);
  }
  /** The message that is shown: the chosen one, else the slowest that the choice leaves. */
  shown(): number {
    if (this.state.message !== null) return this.state.message;
    const d = this.data;
    let best = -1;
    for (const i of d.focus) if (this.chosen(i) && (best < 0 || d.latency[i]! > d.latency[best]!)) best = i;
    return best >= 0 ? best : d.slowest;
  }
  narrowed(): boolean { const s = this.state; return s.cause !== null || s.range !== null || s.zoom !== null || s.filter !== null; }
  inFocus(i: number): boolean { return this.data.cause[i] !== NOT_IN_FOCUS; }

  fragment(): string {
    const s = this.state, out = new URLSearchParams();
    if (s.cause !== null) out.set("cause", String(s.cause + 1));
    if (s.message !== null) out.set("message", String(s.message));
    if (s.range) out.set("latency", s.range.map(Math.round).join("-"));
    if (s.zoom) out.set("ids", s.zoom.map(Math.round).join("-"));
    if (s.filter) out.set(s.filter.by, String(s.filter.value));
    if (s.fn) out.set("function", s.fn);
    if (s.x !== "order") out.set("x", s.x);
    if (s.y !== "log") out.set("y", s.y);
    if (s.boxes !== "deviation") out.set("boxes", s.boxes);
    return out.toString();
  }
  private read(): void {
    const p = new URLSearchParams(location.hash.slice(1)), d = this.data;
    const number = (key: string, most: number) => { const text = p.get(key); const v = text && /^\d+$/.test(text) ? +text : NaN; return v >= 0 && v <= most ? v : null; };
    const pair = (key: string): [number, number] | null => { const m = /^(\d+)-(\d+)$/.exec(p.get(key) ?? ""); return m && +m[1]! <= +m[2]! ? [+m[1]!, +m[2]!] : null; };
    const cause = number("cause", d.page.diagnosis.causes.length);
    const by = (["flow", "thread", "class"] as const).find((k) => number(k, 1e9) !== null);
    this.state = {
      cause: cause ? cause - 1 : null, message: number("message", d.n - 1), range: pair("latency"), zoom: pair("ids"),
      filter: by ? { by, value: number(by, 1e9)! } : null, fn: p.get("function") ?? "",
      x: p.get("x") === "time" ? "time" : "order", y: p.get("y") === "linear" ? "linear" : "log", boxes: p.get("boxes") === "messages" ? "messages" : "deviation",
    };
  }
}

/** The state, drawn again when it changes. */
export function useStore(store: Store): State {
  const [state, set] = useState(store.state);
  useEffect(() => store.listen(() => set(store.state)), [store]);
  return state;
}

/** The part of the messages that are no slower than v. */
export function rankOf(sorted: Float64Array, v: number): number {
  let lo = 0, hi = sorted.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (sorted[mid]! <= v) lo = mid + 1; else hi = mid; }
  return sorted.length ? lo / sorted.length : 0;
}

/** Chooses a message and brings its timeline into sight. */
export function open(store: Store, id: number): void {
  store.set({ message: id });
  document.getElementById("message-title")?.scrollIntoView({ block: "start" });
}
