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
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
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
      data = this.data;
    if (range && !(data.latency[i]! >= range[0] && data.latency[i]! <= range[1])) return false;
    if (zoom && !(data.id(i) >= zoom[0] && data.id(i) <= zoom[1])) return false;
    return (
      !filter ||
      (filter.by === "flow" ? data.flow : filter.by === "thread" ? data.thread : data.class)[i] === filter.value
    );
  }
  /** Whether it is also of the chosen cause. */
  chosen(i: number): boolean {
    const { cause } = this.state;
    return this.matches(i) && (cause === null || this.data.cause[i] === cause);
  }
  /** The id of the message that is shown: the chosen one, else the slowest that the choice leaves. */
  shown(): number {
    if (this.state.message !== null) return this.state.message;
    const data = this.data;
    let best = -1;
    for (const i of data.focus) if (this.chosen(i) && (best < 0 || data.latency[i]! > data.latency[best]!)) best = i;
    return data.id(best >= 0 ? best : data.slowest);
  }
  narrowed(): boolean {
    const state = this.state;
    return state.cause !== null || state.range !== null || state.zoom !== null || state.filter !== null;
  }
  inFocus(i: number): boolean {
    return i >= 0 && this.data.cause[i] !== NOT_IN_FOCUS;
  }

  fragment(): string {
    const state = this.state,
      out = new URLSearchParams();
    if (state.cause !== null) out.set("cause", String(state.cause + 1));
    if (state.message !== null) out.set("message", String(state.message));
    if (state.range) out.set("latency", state.range.map(Math.round).join("-"));
    if (state.zoom) out.set("ids", state.zoom.map(Math.round).join("-"));
    if (state.filter) out.set(state.filter.by, String(state.filter.value));
    if (state.fn) out.set("function", state.fn);
    if (state.x !== "order") out.set("x", state.x);
    if (state.y !== "log") out.set("y", state.y);
    if (state.boxes !== "deviation") out.set("boxes", state.boxes);
    return out.toString();
  }
  private read(): void {
    const params = new URLSearchParams(location.hash.slice(1)),
      data = this.data;
    const number = (key: string, most: number) => {
      const text = params.get(key);
      const value = text && /^\d+$/.test(text) ? +text : NaN;
      return value >= 0 && value <= most ? value : null;
    };
    const pair = (key: string): [number, number] | null => {
      const match = /^(\d+)-(\d+)$/.exec(params.get(key) ?? "");
      return match && +match[1]! <= +match[2]! ? [+match[1]!, +match[2]!] : null;
    };
    const cause = number("cause", data.page.diagnosis.causes.length);
    const by = (["flow", "thread", "class"] as const).find((k) => number(k, 1e9) !== null);
    this.state = {
      cause: cause ? cause - 1 : null,
      message: number("message", data.total - 1),
      range: pair("latency"),
      zoom: pair("ids"),
      filter: by ? { by, value: number(by, 1e9)! } : null,
      fn: params.get("function") ?? "",
      x: params.get("x") === "time" ? "time" : "order",
      y: params.get("y") === "linear" ? "linear" : "log",
      boxes: params.get("boxes") === "messages" ? "messages" : "deviation",
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
