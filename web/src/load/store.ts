// What is chosen on a page of measurements: the one whose details are shown, and those that are left out of the plots.
// It is in the address.
import { useEffect, useState } from "preact/hooks";
import type { LoadData, Result } from "./types";

export interface Choice {
  chosen: number;
  without: number[];
}

export class LoadStore {
  choice: Choice;
  private readonly listeners = new Set<() => void>();
  constructor(readonly data: LoadData) {
    this.choice = this.read();
    addEventListener("hashchange", () => {
      this.choice = this.read();
      this.tell();
    });
  }
  get shown(): Result {
    return this.data.results[this.choice.chosen]!;
  }
  set(patch: Partial<Choice>): void {
    this.choice = { ...this.choice, ...patch };
    const out = new URLSearchParams();
    if (this.choice.chosen !== this.usual()) out.set("result", String(this.choice.chosen + 1));
    if (this.choice.without.length) out.set("without", this.choice.without.map((i) => i + 1).join("-"));
    const hash = out.toString();
    try {
      history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
    } catch {
      /* stays as it was */
    }
    this.tell();
  }
  /** Leaves a measurement out, or takes it back in; the last one stays. */
  toggle(i: number): void {
    const { without } = this.choice,
      out = without.includes(i) ? without.filter((k) => k !== i) : [...without, i];
    if (out.length < this.data.results.length) this.set({ without: out });
  }
  /** Places of the measurements that are drawn. */
  drawn(): number[] {
    return this.data.results.map((_, i) => i).filter((i) => !this.choice.without.includes(i));
  }
  private tell(): void {
    for (const listener of this.listeners) listener();
  }
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
    };
  }
  /** The first one; of a sweep the highest rate with a number. */
  private usual(): number {
    const { results, sweep } = this.data;
    if (!sweep) return 0;
    let best = 0;
    results.forEach((result, i) => {
      if (
        result.report.verdict.verdict === "number" &&
        (result.report.rate.asked ?? 0) >= (results[best]!.report.rate.asked ?? 0)
      )
        best = i;
    });
    return best;
  }
  private read(): Choice {
    const params = new URLSearchParams(location.hash.slice(1)),
      results = this.data.results.length;
    const place = (text: string | null) =>
      text && /^\d+$/.test(text) && +text >= 1 && +text <= results ? +text - 1 : -1;
    const chosen = place(params.get("result")),
      without = [
        ...new Set(
          (params.get("without") ?? "")
            .split("-")
            .map(place)
            .filter((i) => i >= 0),
        ),
      ];
    return { chosen: chosen >= 0 ? chosen : this.usual(), without: without.length < results ? without : [] };
  }
}

export function useChoice(store: LoadStore): Choice {
  const [choice, set] = useState(store.choice);
  useEffect(() => store.listen(() => set(store.choice)), [store]);
  return choice;
}
