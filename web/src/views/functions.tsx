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
  const functions = store.data.page.functions!,
    root: Node = { name: "all", focus: 0, reference: 0, children: new Map(), parent: null, depth: 0 };
  for (const [frames, focus, reference] of functions.stacks) {
    let at = root;
    at.focus += focus;
    at.reference += reference;
    for (const k of frames) {
      const name = functions.frames[k]!;
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
    functions = store.data.page.functions;
  const root = useMemo(() => (store.data.page.functions ? tree(store) : null), [store]);
  const [top, setTop] = useState<Node | null>(null),
    placed = useRef<{ node: Node; x: number; y: number; w: number }[]>([]),
    over = useRef<Node | null>(null);
  const topRef = useRef<Node | null>(null);
  topRef.current = top;
  useEffect(() => hideTip, []);
  if (!functions || !root) {
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
  const deepest = (node: Node, width: number) => {
    if (width < LEAST / 1000) return;
    depth = Math.max(depth, node.depth - base.depth);
    for (const c of node.children.values()) deepest(c, (width * weight(c)) / Math.max(1e-9, sum(node)));
  };
  const sum = (node: Node) =>
    Math.max(
      weight(node),
      [...node.children.values()].reduce((a, c) => a + weight(c), 0),
    );
  deepest(base, 1);
  const worst = Math.max(1e-9, ...[...root.children.values()].map((c) => Math.abs(c.focus - c.reference)));
  const color = (node: Node) => {
    const by = node.focus - node.reference,
      k = Math.min(1, Math.sqrt(Math.abs(by) / worst));
    return `color-mix(in srgb, ${by > 0 ? ink("c0") : ink("c1")} ${(12 + 68 * k).toFixed(0)}%, ${ink("panel")})`;
  };
  const needle = state.fn.toLowerCase();
  const draw = (ctx: CanvasRenderingContext2D, plot: Plot) => {
    placed.current = [];
    let outlined: [number, number, number] | null = null;
    const put = (node: Node, x: number, width: number) => {
      if (width < LEAST) return;
      const y = (node.depth - base.depth) * ROW;
      placed.current.push({ node: node, x, y, w: width });
      const isFound = needle && node.name.toLowerCase().includes(needle);
      ctx.globalAlpha = needle && !isFound ? 0.4 : 1;
      ctx.fillStyle = node === root ? ink("panel") : color(node);
      ctx.fillRect(x, y, Math.max(0.6, width - 0.6), ROW - 1);
      if (node === over.current && over.current) outlined = [x, y, width];
      if (isFound) {
        ctx.strokeStyle = ink("ink");
        ctx.lineWidth = 1.5;
        ctx.strokeRect(x + 0.75, y + 0.75, Math.max(0.5, width - 2), ROW - 2.5);
      }
      if (width > 28) {
        ctx.fillStyle = ink("ink");
        ctx.textBaseline = "middle";
        ctx.textAlign = "left";
        ctx.fillText(fit(ctx, node === root ? "all sampled time" : node.name, width - 8), x + 4, y + ROW / 2);
      }
      ctx.globalAlpha = 1;
      const total = sum(node);
      let at = x;
      for (const child of [...node.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const cw = (weight(child) / total) * width;
        put(child, at, cw);
        at += cw;
      }
    };
    put(base, 0, plot.width);
    if (outlined && document.activeElement === plot.canvas) {
      const [x, y, width] = outlined as [number, number, number];
      ctx.strokeStyle = ink("ink");
      ctx.lineWidth = 2;
      ctx.strokeRect(x + 1, y + 1, Math.max(1, width - 2.6), ROW - 3);
    }
  };
  const tipRows = (node: Node) => [
    "focus " + duration(node.focus) + " of a mean message",
    "reference " + duration(node.reference),
    "difference " + more(node.focus - node.reference),
    percent(root.focus > 0 ? node.focus / root.focus : 0) + " of the focus's samples",
  ];
  const setup = (plot: Plot) => {
    const at = (event: MouseEvent) => {
      const box = plot.canvas.getBoundingClientRect(),
        x = event.clientX - box.left,
        y = event.clientY - box.top;
      return placed.current.find((r) => x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + ROW)?.node ?? null;
    };
    plot.canvas.addEventListener("pointermove", (event) => {
      const node = at(event);
      over.current = node;
      if (node)
        showTip(
          event.clientX,
          event.clientY,
          node === root ? "All sampled time" : short(node.name, 300),
          tipRows(node),
        );
      else hideTip();
    });
    plot.canvas.addEventListener("pointerleave", hideTip);
    plot.canvas.addEventListener("click", (event) => {
      const node = at(event);
      hideTip();
      if (node) setTop(node === topRef.current ? node.parent : node === root ? null : node);
    });
    plot.canvas.addEventListener("keydown", (event) => {
      const placedBoxes = placed.current,
        here = placedBoxes.find((r) => r.node === over.current) ?? null;
      const row = here ? placedBoxes.filter((r) => r.y === here.y).sort((a, b) => a.x - b.x) : [],
        place = here ? row.indexOf(here) : 0;
      const below = here
        ? placedBoxes.filter((r) => r.node.parent === here.node).sort((a, b) => b.w - a.w)[0]
        : undefined;
      let to: (typeof placedBoxes)[number] | undefined;
      if (event.key === "Escape" || event.key === "0") {
        over.current = null;
        hideTip();
        setTop(null);
        say("all sampled time");
      } else if (event.key === "Enter" && here) {
        hideTip();
        setTop(here.node === topRef.current ? here.node.parent : here.node.parent ? here.node : null);
      } else if (!event.key.startsWith("Arrow")) return;
      else if (!here) to = placedBoxes[0];
      else
        to =
          event.key === "ArrowDown"
            ? below
            : event.key === "ArrowUp"
              ? placedBoxes.find((r) => r.node === here.node.parent)
              : row[place + (event.key === "ArrowRight" ? 1 : -1)];
      event.preventDefault();
      if (!to) return;
      over.current = to.node;
      plot.redraw();
      const box = plot.canvas.getBoundingClientRect(),
        title = to.node === root ? "All sampled time" : short(to.node.name, 300),
        rows = tipRows(to.node);
      showTip(box.left + to.x, box.top + to.y + ROW, title, rows);
      say(title + ", " + rows.join(", "));
    });
    plot.canvas.addEventListener("blur", () => {
      hideTip();
      plot.redraw();
    });
  };
  // By function, whoever called it, each stack once.
  const flat = new Map<number, [number, number]>();
  for (const [frames, focus, reference] of functions.stacks)
    for (const k of new Set(frames)) {
      const sums = flat.get(k) ?? [0, 0];
      sums[0] += focus;
      sums[1] += reference;
      flat.set(k, sums);
    }
  const rows = [...flat]
    .map(([k, [a, b]]) => ({ name: functions.frames[k]!, a, b }))
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
        (functions.left_out
          ? functions.left_out === 1
            ? " The smallest stack is left out."
            : " The " + count(functions.left_out) + " smallest stacks are left out."
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
          plural(functions.stacks.length, "call stack") +
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
              {rows.map((row) => (
                <tr>
                  <td class="what">
                    <button type="button" class="link" onClick={() => store.set({ fn: row.name })}>
                      {short(row.name, 200)}
                    </button>
                  </td>
                  <td class="num">{duration(row.a)}</td>
                  <td class="num">{duration(row.b)}</td>
                  <td class="num">{more(row.a - row.b)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </details>
    </Section>
  );
}
