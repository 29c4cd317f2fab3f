// View 7: the differential flame graph of the focus against the reference, from samples: width is time in the focus,
// colour the difference.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart, fit, hideTip, say, showTip, type Plot } from "../chart";
import { Scroll, Section } from "../parts";
import { useStore, type Store } from "../store";
import { ink } from "../theme";
import { count, duration, more, percent, plural, short } from "../units";

interface Node {
  name: string;
  focus: number;
  reference: number;
  children: Map<string, Node>;
  parent: Node | null;
  depth: number;
}
const ROW = 19,
  LEAST = 1;

function tree(store: Store): Node {
  const f = store.data.page.functions!,
    root: Node = { name: "all", focus: 0, reference: 0, children: new Map(), parent: null, depth: 0 };
  for (const [frames, focus, reference] of f.stacks) {
    let at = root;
    at.focus += focus;
    at.reference += reference;
    for (const k of frames) {
      const name = f.frames[k]!;
      let next = at.children.get(name);
      if (!next) {
        next = { name, focus: 0, reference: 0, children: new Map(), parent: at, depth: at.depth + 1 };
        at.children.set(name, next);
      }
      next.focus += focus;
      next.reference += reference;
      at = next;
    }
  }
  return root;
}

export function Functions({ store }: { store: Store }) {
  const state = useStore(store),
    f = store.data.page.functions;
  const root = useMemo(() => (store.data.page.functions ? tree(store) : null), [store]);
  const [top, setTop] = useState<Node | null>(null),
    placed = useRef<{ node: Node; x: number; y: number; w: number }[]>([]),
    over = useRef<Node | null>(null);
  const topRef = useRef<Node | null>(null);
  topRef.current = top;
  useEffect(() => hideTip, []);
  if (!f || !root) {
    return (
      <Section
        id="functions"
        title="Functions"
        lede={
          store.data.page.meta.sampling
            ? "No sample met a message."
            : "This run has no samples: record without --sample off to see functions."
        }
      >
        {null}
      </Section>
    );
  }
  const base = top ?? root,
    weight = (n: Node) => Math.max(n.focus, n.reference);
  let depth = 0;
  const deepest = (n: Node, w: number) => {
    if (w < LEAST / 1000) return;
    depth = Math.max(depth, n.depth - base.depth);
    for (const c of n.children.values()) deepest(c, (w * weight(c)) / Math.max(1e-9, sum(n)));
  };
  const sum = (n: Node) =>
    Math.max(
      weight(n),
      [...n.children.values()].reduce((a, c) => a + weight(c), 0),
    );
  deepest(base, 1);
  const worst = Math.max(1e-9, ...[...root.children.values()].map((c) => Math.abs(c.focus - c.reference)));
  const color = (n: Node) => {
    const by = n.focus - n.reference,
      k = Math.min(1, Math.sqrt(Math.abs(by) / worst));
    return `color-mix(in srgb, ${by > 0 ? ink("c0") : ink("c1")} ${(12 + 68 * k).toFixed(0)}%, ${ink("panel")})`;
  };
  const needle = state.fn.toLowerCase();
  const draw = (g: CanvasRenderingContext2D, p: Plot) => {
    placed.current = [];
    let outlined: [number, number, number] | null = null;
    const put = (n: Node, x: number, w: number) => {
      if (w < LEAST) return;
      const y = (n.depth - base.depth) * ROW;
      placed.current.push({ node: n, x, y, w });
      const found = needle && n.name.toLowerCase().includes(needle);
      g.globalAlpha = needle && !found ? 0.4 : 1;
      g.fillStyle = n === root ? ink("panel") : color(n);
      g.fillRect(x, y, Math.max(0.6, w - 0.6), ROW - 1);
      if (n === over.current && over.current) outlined = [x, y, w];
      if (found) {
        g.strokeStyle = ink("ink");
        g.lineWidth = 1.5;
        g.strokeRect(x + 0.75, y + 0.75, Math.max(0.5, w - 2), ROW - 2.5);
      }
      if (w > 28) {
        g.fillStyle = ink("ink");
        g.textBaseline = "middle";
        g.textAlign = "left";
        g.fillText(fit(g, n === root ? "all sampled time" : n.name, w - 8), x + 4, y + ROW / 2);
      }
      g.globalAlpha = 1;
      const all = sum(n);
      let at = x;
      for (const c of [...n.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const cw = (weight(c) / all) * w;
        put(c, at, cw);
        at += cw;
      }
    };
    put(base, 0, p.width);
    if (outlined && document.activeElement === p.canvas) {
      const [x, y, w] = outlined as [number, number, number];
      g.strokeStyle = ink("ink");
      g.lineWidth = 2;
      g.strokeRect(x + 1, y + 1, Math.max(1, w - 2.6), ROW - 3);
    }
  };
  const tipRows = (n: Node) => [
    "focus " + duration(n.focus) + " of a mean message",
    "reference " + duration(n.reference),
    "difference " + more(n.focus - n.reference),
    percent(root.focus > 0 ? n.focus / root.focus : 0) + " of the focus's samples",
  ];
  const setup = (p: Plot) => {
    const at = (e: MouseEvent) => {
      const box = p.canvas.getBoundingClientRect(),
        x = e.clientX - box.left,
        y = e.clientY - box.top;
      return placed.current.find((r) => x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + ROW)?.node ?? null;
    };
    p.canvas.addEventListener("pointermove", (e) => {
      const n = at(e);
      over.current = n;
      if (n) showTip(e.clientX, e.clientY, n === root ? "All sampled time" : short(n.name, 300), tipRows(n));
      else hideTip();
    });
    p.canvas.addEventListener("pointerleave", hideTip);
    p.canvas.addEventListener("click", (e) => {
      const n = at(e);
      hideTip();
      if (n) setTop(n === topRef.current ? n.parent : n === root ? null : n);
    });
    p.canvas.addEventListener("keydown", (e) => {
      const all = placed.current,
        here = all.find((r) => r.node === over.current) ?? null;
      const row = here ? all.filter((r) => r.y === here.y).sort((a, b) => a.x - b.x) : [],
        place = here ? row.indexOf(here) : 0;
      const below = here ? all.filter((r) => r.node.parent === here.node).sort((a, b) => b.w - a.w)[0] : undefined;
      let to: (typeof all)[number] | undefined;
      if (e.key === "Escape" || e.key === "0") {
        over.current = null;
        hideTip();
        setTop(null);
        say("all sampled time");
      } else if (e.key === "Enter" && here) {
        hideTip();
        setTop(here.node === topRef.current ? here.node.parent : here.node.parent ? here.node : null);
      } else if (!e.key.startsWith("Arrow")) return;
      else if (!here) to = all[0];
      else
        to =
          e.key === "ArrowDown"
            ? below
            : e.key === "ArrowUp"
              ? all.find((r) => r.node === here.node.parent)
              : row[place + (e.key === "ArrowRight" ? 1 : -1)];
      e.preventDefault();
      if (!to) return;
      over.current = to.node;
      p.redraw();
      const box = p.canvas.getBoundingClientRect(),
        title = to.node === root ? "All sampled time" : short(to.node.name, 300),
        rows = tipRows(to.node);
      showTip(box.left + to.x, box.top + to.y + ROW, title, rows);
      say(title + ", " + rows.join(", "));
    });
    p.canvas.addEventListener("blur", () => {
      hideTip();
      p.redraw();
    });
  };
  // By function, whoever called it, each stack once.
  const flat = new Map<number, [number, number]>();
  for (const [frames, a, b] of f.stacks)
    for (const k of new Set(frames)) {
      const e = flat.get(k) ?? [0, 0];
      e[0] += a;
      e[1] += b;
      flat.set(k, e);
    }
  const rows = [...flat]
    .map(([k, [a, b]]) => ({ name: f.frames[k]!, a, b }))
    .filter((r) => !needle || r.name.toLowerCase().includes(needle))
    .sort((x, y) => Math.abs(y.a - y.b) - Math.abs(x.a - x.b))
    .slice(0, 40);
  const against = store.data.page.diagnosis.against;
  return (
    <Section
      id="functions"
      title="Functions: the focus against the reference"
      lede={
        "Call stacks that the clock sampled while messages were under way, as ns of a mean message" +
        (against ? ", both of this run" : "") +
        ". A box is as wide as the larger of both; red: more in the focus, blue: less. Press a box to see it alone, again to go out." +
        (f.left_out
          ? f.left_out === 1
            ? " The smallest stack is left out."
            : " The " + count(f.left_out) + " smallest stacks are left out."
          : "")
      }
      aside={
        <span class="find">
          <input
            type="search"
            aria-label="Look for a function"
            placeholder="function"
            value={state.fn}
            onInput={(e) => store.set({ fn: (e.target as HTMLInputElement).value })}
          />
          {top ? (
            <button type="button" class="link" onClick={() => setTop(null)}>
              Show all
            </button>
          ) : null}
        </span>
      }
    >
      <Chart
        height={(Math.min(depth, 60) + 1) * ROW + 4}
        label={
          "Flame graph of " +
          plural(f.stacks.length, "call stack") +
          ". Keys: arrows move between boxes, Enter shows one alone, 0 shows all. The same by function as a table follows."
        }
        draw={draw}
        setup={setup}
      />
      <details open={Boolean(needle)}>
        <summary>By function, with what it called</summary>
        <Scroll label="Table of the functions">
          <table>
            <thead>
              <tr>
                <th>Function</th>
                <th class="num">Focus</th>
                <th class="num">Reference</th>
                <th class="num">Difference</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((r) => (
                <tr>
                  <td class="what">
                    <button type="button" class="link" onClick={() => store.set({ fn: r.name })}>
                      {short(r.name, 200)}
                    </button>
                  </td>
                  <td class="num">{duration(r.a)}</td>
                  <td class="num">{duration(r.b)}</td>
                  <td class="num">{more(r.a - r.b)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </details>
    </Section>
  );
}
