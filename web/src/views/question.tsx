// Only where the page is served: another slice or leg of the same run, which the server diagnoses anew.
import { useState } from "preact/hooks";
import type { Store } from "../store";
import type { Leg } from "../types";
import { percentile } from "../units";

export function Question({ store }: { store: Store }) {
  const diagnosis = store.data.page.diagnosis,
    now = percentile(diagnosis.focus.from) + ".." + percentile(diagnosis.focus.to);
  const [focus, setFocus] = useState(now),
    [leg, setLeg] = useState(diagnosis.leg);
  const ask = (event: Event) => {
    event.preventDefault();
    location.href = location.pathname + "?" + new URLSearchParams({ focus, leg }) + location.hash;
  };
  return (
    <form class="question" aria-label="Which part of the run" onSubmit={ask}>
      <label>
        Messages{" "}
        <input
          list="slices"
          value={focus}
          size={14}
          pattern="p[0-9.]+\.\.p[0-9.]+"
          onInput={(e) => setFocus((e.target as HTMLInputElement).value)}
        />
      </label>
      <datalist id="slices">
        {["p99..p100", "p99.9..p100", "p90..p99", "p50..p90", "p90..p100"].map((s) => (
          <option value={s} />
        ))}
      </datalist>
      <label>
        Leg{" "}
        <select value={leg} onChange={(e) => setLeg((e.target as HTMLSelectElement).value as Leg)}>
          {["total", "receive", "service", "transmit"].map((l) => (
            <option value={l}>{l}</option>
          ))}
        </select>
      </label>
      <button type="submit">Ask</button>
    </form>
  );
}
