// The bar on top: the search box, what is chosen, and the way to each view.
import { useState } from "preact/hooks";
import { open, useStore, type State, type Store } from "../store";
import { count, duration, short } from "../units";

const PLACES: [string, string][] = [
  ["causes", "Causes"],
  ["balloon", "Messages"],
  ["boxes", "Boxes"],
  ["message", "Timeline"],
  ["distribution", "Distribution"],
  ["functions", "Functions"],
  ["queue", "Queueing"],
  ["compare", "Compare"],
  ["record", "Recording"],
];

interface Found {
  kind: string;
  text: string;
  go: () => void;
}

export function TopBar({ store, present }: { store: Store; present: (id: string) => boolean }) {
  const state = useStore(store),
    [query, setQuery] = useState(""),
    [at, setAt] = useState(0),
    [shut, setShut] = useState(false);
  const entries = query && !shut ? search(store, query) : [];
  const go = (entry: Found | undefined) => {
    if (!entry) return;
    entry.go();
    setQuery("");
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(entries.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") go(entries[at]);
    else if (event.key === "Escape") setShut(true);
    else return;
    event.preventDefault();
  };
  const jump = (id: string) => (event: MouseEvent) => {
    event.preventDefault();
    document.getElementById(id + "-title")?.scrollIntoView();
  };
  return (
    <nav class="topbar" aria-label="Views and search">
      <div class="find">
        <input
          type="text"
          role="combobox"
          aria-label="Search message ids, causes, tasks, functions, flows, threads"
          aria-expanded={entries.length ? "true" : "false"}
          aria-controls="found"
          aria-activedescendant={entries.length ? "found-" + at : undefined}
          placeholder="message, cause, task, function, flow"
          value={query}
          id="search"
          onInput={(event) => {
            setQuery((event.target as HTMLInputElement).value);
            setAt(0);
            setShut(false);
          }}
          onKeyDown={key}
          onBlur={() => setTimeout(() => setShut(true), 200)}
          onFocus={() => setShut(false)}
        />
        {query && !shut ? (
          <ul id="found" role="listbox">
            {entries.length ? (
              entries.map((entry, i) => (
                <li
                  role="option"
                  id={"found-" + i}
                  aria-selected={i === at ? "true" : "false"}
                  onPointerDown={(event) => {
                    event.preventDefault();
                    go(entry);
                  }}
                >
                  <span class="kind">{entry.kind}</span>
                  {short(entry.text, 120)}
                </li>
              ))
            ) : (
              <li role="option" aria-selected="false" class="none">
                nothing of that name
              </li>
            )}
          </ul>
        ) : null}
      </div>
      <ul class="places">
        {PLACES.filter(([id]) => present(id)).map(([id, name]) => (
          <li>
            <a href={"#" + id} onClick={jump(id)}>
              {name}
            </a>
          </li>
        ))}
      </ul>
      {Chips({ store, state })}
    </nav>
  );
}

function Chips({ store, state }: { store: Store; state: State }) {
  const data = store.data,
    chips: [string, Partial<State>][] = [];
  if (state.cause !== null) chips.push(["cause: " + short(store.looks.name(state.cause), 40), { cause: null }]);
  if (state.range) chips.push([duration(state.range[0]) + " to " + duration(state.range[1]), { range: null }]);
  if (state.zoom) chips.push(["messages " + count(state.zoom[0]) + " to " + count(state.zoom[1]), { zoom: null }]);
  if (state.filter)
    chips.push([
      state.filter.by + ": " + short(filterName(store, state.filter.by, state.filter.value), 50),
      { filter: null },
    ]);
  if (state.message !== null) chips.push(["message " + count(state.message), { message: null }]);
  if (state.fn) chips.push(["function: " + short(state.fn, 40), { fn: "" }]);
  if (!chips.length) return null;
  void data;
  return (
    <ul class="chips" aria-label="What is chosen">
      {chips.map(([text, patch]) => (
        <li>
          <button type="button" title="Press to take this out" onClick={() => store.set(patch)}>
            {text} <span aria-hidden="true">×</span>
          </button>
        </li>
      ))}
      {chips.length > 1 ? (
        <li>
          <button
            type="button"
            class="link"
            onClick={() => store.set({ cause: null, range: null, zoom: null, filter: null, message: null, fn: "" })}
          >
            Show all
          </button>
        </li>
      ) : null}
    </ul>
  );
}

function filterName(store: Store, by: "flow" | "thread" | "class", value: number): string {
  const columns = store.data.page.messages;
  return by === "flow"
    ? (columns.flow_names[value] ?? String(value))
    : by === "thread"
      ? String(columns.threads[value] ?? value)
      : (columns.classes[value] ?? String(value));
}

function search(store: Store, text: string): Found[] {
  const needle = text
      .trim()
      .toLowerCase()
      .replace(/^message\s+/, ""),
    data = store.data,
    page = data.page,
    out: Found[] = [],
    most = 12;
  if (!needle) return out;
  const digits = needle.replace(/[ ,.]/g, "");
  if (/^\d+$/.test(digits)) {
    const id = +digits,
      row = data.row(id),
      ns = row < 0 ? undefined : data.latency[row]!;
    if (id < data.total)
      out.push({
        kind: "message",
        text: count(id) + (ns === undefined ? "" : Number.isNaN(ns) ? ", not complete" : ", " + duration(ns)),
        go: () => open(store, id),
      });
  }
  page.diagnosis.causes.forEach((cause, i) => {
    const names = [
      store.looks.title(i),
      cause.name,
      cause.who?.comm ?? "",
      ...(cause.who?.by_thread ?? []).map((t) => t.name),
      ...cause.paths.map((p) => p[0]),
    ];
    if (store.looks.named(i) && names.some((n) => n.toLowerCase().includes(needle)))
      out.push({
        kind: "cause",
        text: store.looks.title(i),
        go: () => {
          store.set({ cause: i });
          document.getElementById("causes-title")?.scrollIntoView();
        },
      });
  });
  const filter = (kind: "flow" | "thread" | "class", name: string, value: number) => {
    if (out.length < most && name.toLowerCase().includes(needle))
      out.push({
        kind,
        text: name,
        go: () => {
          store.set({ filter: { by: kind, value } });
          document.getElementById("balloon-title")?.scrollIntoView();
        },
      });
  };
  for (const [i, name] of page.messages.classes.entries()) filter("class", name, i);
  for (const [i, tid] of page.messages.threads.entries()) filter("thread", String(tid), i);
  const names = new Set([
    ...(page.functions?.frames ?? []),
    ...page.diagnosis.causes.flatMap((c) => (c.functions ?? []).map((f) => f.name)),
  ]);
  for (const name of names) {
    if (out.length >= most) break;
    if (name.toLowerCase().includes(needle))
      out.push({
        kind: "function",
        text: name,
        go: () => {
          store.set({ fn: name });
          document.getElementById("functions-title")?.scrollIntoView();
        },
      });
  }
  for (const [k, name] of Object.entries(page.messages.flow_names)) {
    if (out.length >= most) break;
    filter("flow", name, +k);
  }
  return out.slice(0, most);
}
