// The page's one store: the data, what is chosen, and the URL fragment that says it, so that a view can be sent.
// Messages are chosen by id and looked at by row (data.ts). A served page asks its server for the messages of what is
// chosen.
import { useEffect, useState } from "preact/hooks";
import { NOT_IN_FOCUS, type Data, type Part } from "./data";
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
const initial: State = {
  cause: null,
  message: null,
  range: null,
  zoom: null,
  filter: null,
  fn: "",
  x: "order",
  y: "log",
  boxes: "deviation",
};

export class Store {
  state: State = { ...initial };
  readonly looks: Looks;
  private writing = 0;
  private asking = 0;
  /** Why the messages of a part could not be fetched. */
  failed = "";
  private readonly listeners = new Set<() => void>();
  constructor(readonly data: Data) {
    this.looks = new Looks(data.page);
    this.read();
    addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== this.fragment()) {
        this.read();
        this.tell();
        this.ask();
      }
    });
    this.ask();
  }
  set(patch: Partial<State>): void {
    this.state = { ...this.state, ...patch };
    // A zoom is many steps, and some browsers limit how often a page may change its address: it is written when the
    // steps end.
    clearTimeout(this.writing);
    if (Object.keys(patch).join() === "zoom") this.writing = window.setTimeout(() => this.write(), 150);
    else this.write();
    this.tell();
    this.ask();
  }
  /**
   * Where not every message has a row: asks for those of the part that is chosen, when the choice has stood a moment.
   */
  private ask(): void {
    if (!this.data.sampled) return;
    clearTimeout(this.asking);
    this.asking = window.setTimeout(() => {
      this.data
        .look(this.part())
        .then((changed) => {
          const was = this.failed;
          this.failed = "";
          if (changed || was) this.tell();
        })
        .catch((error: Error) => {
          this.failed = error.message;
          this.tell();
        });
    }, 120);
  }
  private part(): Part | null {
    const { zoom, range, filter } = this.state;
    if (!zoom && !range && !filter) return null;
    return {
      from: zoom?.[0] ?? 0,
      to: zoom?.[1] ?? this.data.total - 1,
      low: range?.[0] ?? 0,
      high: range?.[1] ?? Number.MAX_SAFE_INTEGER,
      by: filter?.by ?? "all",
      value: filter?.value ?? 0,
    };
  }
  /** Gives a message a row, where it has none. */
  pin(id: number): void {
    this.data
      .pin(id)
      .then((changed) => {
        if (changed) this.tell();
      })
      .catch(() => {
        /* Its timeline says what is wrong. */
      });
  }
  private write(): void {
    const hash = this.fragment();
    // The view does not depend on it.
    try {
      history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
    } catch {
      /* stays as it was */
    }
  }
  listen(f: () => void): () => void {
    this.listeners.add(f);
    return () => {
      this.listeners.delete(f);
    };
  }
  private tell(): void {
    this.told++;
    for (const listener of this.listeners) listener();
  }
  /** Rises with every change of what is chosen or of the rows. */
  told = 0;

  /** Whether a row is among those that flow, thread, class, latency and order leave. */
  matches(i: number): boolean {
    const { filter, range, zoom } = this.state,
      d = this.data;
    if (range && !(d.latency[i]! >= range[0] && d.latency[i]! <= range[1])) return false;
    if (zoom && !(d.id(i) >= zoom[0] && d.id(i) <= zoom[1])) return false;
    return !filter || (filter.by === "flow" ? d.flow : filter.by === "thread" ? d.thread : d.class)[i] === filter.value;
  }
  /** Whether it is also of the chosen cause. */
  chosen(i: number): boolean {
    const { cause } = this.state;
    return this.matches(i) && (cause === null || this.data.cause[i] === cause);
  }
  /** The id of the message that is shown: the chosen one, else the slowest that the choice leaves. */
  shown(): number {
    if (this.state.message !== null) return this.state.message;
    const d = this.data;
    let best = -1;
    for (const i of d.focus) if (this.chosen(i) && (best < 0 || d.latency[i]! > d.latency[best]!)) best = i;
    return d.id(best >= 0 ? best : d.slowest);
  }
  narrowed(): boolean {
    const s = this.state;
    return s.cause !== null || s.range !== null || s.zoom !== null || s.filter !== null;
  }
  inFocus(i: number): boolean {
    return i >= 0 && this.data.cause[i] !== NOT_IN_FOCUS;
  }

  fragment(): string {
    const s = this.state,
      out = new URLSearchParams();
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
    const p = new URLSearchParams(location.hash.slice(1)),
      d = this.data;
    const number = (key: string, most: number) => {
      const text = p.get(key);
      const v = text && /^\d+$/.test(text) ? +text : NaN;
      return v >= 0 && v <= most ? v : null;
    };
    const pair = (key: string): [number, number] | null => {
      const m = /^(\d+)-(\d+)$/.exec(p.get(key) ?? "");
      return m && +m[1]! <= +m[2]! ? [+m[1]!, +m[2]!] : null;
    };
    const cause = number("cause", d.page.diagnosis.causes.length);
    const by = (["flow", "thread", "class"] as const).find((k) => number(k, 1e9) !== null);
    this.state = {
      cause: cause ? cause - 1 : null,
      message: number("message", d.total - 1),
      range: pair("latency"),
      zoom: pair("ids"),
      filter: by ? { by, value: number(by, 1e9)! } : null,
      fn: p.get("function") ?? "",
      x: p.get("x") === "time" ? "time" : "order",
      y: p.get("y") === "linear" ? "linear" : "log",
      boxes: p.get("boxes") === "messages" ? "messages" : "deviation",
    };
  }
}

/** The state, drawn again when it changes. */
export function useStore(store: Store): State {
  const [, set] = useState(0);
  useEffect(() => store.listen(() => set(store.told)), [store]);
  return store.state;
}

/** Chooses a message and brings its timeline into sight. */
export function open(store: Store, id: number): void {
  store.set({ message: id });
  document.getElementById("message-title")?.scrollIntoView({ block: "start" });
}
