// A message's timeline from its spans: the boxes that nest, the lanes, and the rows that sum to its latency.
import type { Bundle, RowKey, Timeline } from "./types";

export const LEGS = ["receive", "service", "transmit"] as const;

export interface Box {
  lane: number;
  level: number;
  from: number;
  to: number;
  own: number;
  path: string;
  name: string;
  cause: number | null;
  gap: boolean;
}
export interface Lane {
  name: string;
  cpu: number;
  role: string;
  depth: number;
}
export interface Built {
  lanes: Lane[];
  boxes: Box[];
  moves: [number, number, number][];
  rows: MessageRow[];
  samples: { at: number; lane: number; stack: string[] }[];
}
/** A row of the message beside a reference message's. */
export interface MessageRow {
  key: RowKey;
  ns: number;
  reference: number;
  more: number;
  cause: number | null;
}

/** Times are ns from the start of the path. */
export function build(bundle: Bundle, timeline: Timeline, reference: RowKey[], roles: Record<string, string>): Built {
  const lanes: Lane[] = [],
    boxes: Box[] = [],
    moves: [number, number, number][] = [];
  const laneOf = new Map<string, number>(),
    times = new Map<number, { ns: number; causes: Map<number, number> }>();
  const spans: { from: number; to: number; lane: number }[] = [];
  let open: { name: string; box: Box }[] = [],
    at = 0,
    previous = -1;
  for (let i = 0; i < timeline.spans.length; i += 4) {
    const ns = timeline.spans[i]!,
      cpu = timeline.spans[i + 1]!,
      slot = bundle.slots[timeline.spans[i + 2]!]!,
      begins = timeline.spans[i + 3] === 1;
    const laneKey = cpu + slot.role;
    let lane = laneOf.get(laneKey) ?? -1;
    if (lane < 0) {
      lane = lanes.length;
      laneOf.set(laneKey, lane);
      lanes.push({
        name: cpu < 0 ? "on no core" : `core ${cpu}: ${roles[slot.role] ?? slot.role}`,
        cpu,
        role: slot.role,
        depth: 1,
      });
    }
    if (previous >= 0 && previous !== lane) {
      moves.push([at, previous, lane]);
      open = [];
    }
    previous = lane;
    const owner = bundle.owners[slot.owner]!,
      names = owner.names,
      to = at + ns;
    let keep = 0;
    while (keep < open.length && keep < names.length && open[keep]!.name === names[keep]) keep++;
    // A second box of the same name right after the first is a new one, not the first gone on.
    if (begins && keep === names.length && keep > 1) keep--;
    open.length = keep;
    for (let level = keep; level < names.length; level++) {
      const box: Box = {
        lane,
        level,
        from: at,
        to,
        own: 0,
        path: names.slice(0, level + 1).join("/"),
        name: names[level]!,
        cause: null,
        gap: false,
      };
      boxes.push(box);
      open.push({ name: names[level]!, box });
    }
    for (const o of open) o.box.to = to;
    const innermost = open[open.length - 1]!.box;
    innermost.own += ns;
    innermost.cause = slot.cause;
    innermost.gap = owner.gap;
    lanes[lane]!.depth = Math.max(lanes[lane]!.depth, names.length);
    spans.push({ from: at, to, lane });
    const row = times.get(slot.key) ?? { ns: 0, causes: new Map<number, number>() };
    row.ns += ns;
    if (slot.cause !== null) row.causes.set(slot.cause, (row.causes.get(slot.cause) ?? 0) + ns);
    times.set(slot.key, row);
    at = to;
  }
  colourParents(boxes);
  const samples = timeline.samples.map(([when, stack]) => ({
    at: when,
    lane: spans.find((s) => when >= s.from && when < s.to)?.lane ?? 0,
    stack: bundle.stacks[stack]!.map((f) => bundle.frames[f]!),
  }));
  return { lanes, boxes, moves, rows: rows(bundle, times, reference), samples };
}

const keyOf = (k: RowKey) => JSON.stringify([k.leg, k.category, k.name, k.role]);

function rows(
  bundle: Bundle,
  times: Map<number, { ns: number; causes: Map<number, number> }>,
  reference: RowKey[],
): MessageRow[] {
  const out = new Map<string, MessageRow>();
  for (const [key, { ns, causes }] of times) {
    const most = [...causes].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0];
    const k = bundle.keys[key]!;
    out.set(keyOf(k), {
      key: k,
      ns,
      reference: k.reference_ns,
      more: ns - k.reference_ns,
      cause: most ? most[0] : null,
    });
  }
  for (const k of reference)
    if (!out.has(keyOf(k)) && k.reference_ns > 0)
      out.set(keyOf(k), { key: k, ns: 0, reference: k.reference_ns, more: -k.reference_ns, cause: null });
  return [...out.values()].sort(
    (a, b) => b.more - a.more || (a.key.category + a.key.name < b.key.category + b.key.name ? -1 : 1),
  );
}

/** A box with no time of its own takes the cause that has the most time in it; one over nothing but gaps is a gap. */
function colourParents(boxes: Box[]): void {
  boxes.forEach((parent, i) => {
    if (parent.own > 0) return;
    const causes = new Map<number | null, number>();
    let gap = true;
    // Boxes are in order of start: those nested in this one follow it.
    for (let k = i + 1; k < boxes.length && boxes[k]!.from < parent.to; k++) {
      const inner = boxes[k]!;
      if (inner.lane !== parent.lane || inner.level <= parent.level) continue;
      causes.set(inner.cause, (causes.get(inner.cause) ?? 0) + inner.own);
      gap &&= inner.own === 0 || inner.gap;
    }
    const most = [...causes].sort((a, b) => b[1] - a[1])[0];
    parent.cause = most ? most[0] : null;
    parent.gap = gap;
  });
}
