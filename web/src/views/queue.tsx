// View 5: what was queued ahead of a message, by function (NSight Figure 19), what ran on each core meanwhile (Figure
// 20), and the most pervasive causes by percentile (Figure 18).
import { Head, Scroll, Section, Swatch } from "../parts";
import type { Store } from "../store";
import type { CoreContexts } from "../types";
import { count, duration, more, percent, percentile } from "../units";

export function Queueing({ store }: { store: Store }) {
  const { page } = store.data,
    diagnosis = page.diagnosis,
    queue = diagnosis.more?.queue ?? [];
  if (!queue.length) return null;
  const relative = (v: number) => (v > 0 ? "+" : v < 0 ? "−" : "") + Math.abs(v).toFixed(1);
  const top = Math.max(...queue.flatMap((q) => q.depth), 1e-9);
  const other = diagnosis.against ? "The run " + diagnosis.against : "Usually";
  return (
    <Section
      id="queue"
      title="What was queued ahead of a message"
      lede={
        "How often each function ran for somebody else while the message waited, and what it took" +
        (diagnosis.against ? ": of this run's focus beside the same slice of the run " + diagnosis.against + "." : ".")
      }
    >
      <Scroll label="Table of what was queued ahead">
        <table class="queue">
          <Head
            cells={[
              ["Queued ahead"],
              ["Depth: in focus, " + (diagnosis.against ? "before" : "usually")],
              ["In focus", true],
              [other, true],
              ["More than that: p10", true],
              ["p50", true],
              ["p90", true],
              ["Its time, more", true],
              ["Messages with more", true],
            ]}
          />
          <tbody>
            {queue.map((queued) => (
              <tr>
                <td class="what">
                  {queued.function === "messages" ? "whole messages" : queued.function}
                  <small>{page.roles[queued.role]}</small>
                </td>
                <td class="twobars" aria-hidden="true">
                  <i style={{ width: (queued.depth[0] / top) * 100 + "%", background: "var(--c1)" }} />
                  <i style={{ width: (queued.depth[1] / top) * 100 + "%", background: "var(--own)" }} />
                </td>
                <td class="num">
                  <b>{queued.depth[0].toFixed(1)}</b>
                </td>
                <td class="num">{queued.depth[1].toFixed(1)}</td>
                {queued.relative.map((value) => (
                  <td class="num">{relative(value)}</td>
                ))}
                <td class="num">{more(queued.mean_ns[0] - queued.mean_ns[1])}</td>
                <td class="num">{count(queued.messages) + " of " + count(diagnosis.focus.messages)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}

/** One bar a core; the same context has the same tint in every bar, by its part of all the time, the largest first. */
export function Cores({ store }: { store: Store }) {
  const { page } = store.data,
    diagnosis = page.diagnosis,
    [focus, reference] = diagnosis.more?.cores ?? [[], []];
  if (!focus.length) return null;
  const sum = new Map<string, number>();
  for (const core of [...focus, ...reference])
    for (const [name, share] of core.contexts) sum.set(name, (sum.get(name) ?? 0) + share * core.share);
  const order = [...sum.keys()].sort((a, b) => sum.get(b)! - sum.get(a)!),
    words = (name: string) => page.contexts[name] || name;
  const tint = (name: string) => "tint t" + Math.min(order.indexOf(name), 8);
  const bars = (title: string, cores: CoreContexts[]) => (
    <div class="cores">
      <h3>{title}</h3>
      {cores.map((core) => (
        <div class="core">
          <p>
            <b>{core.cpu === null ? "On no core" : "Core " + core.cpu}</b>
            {" " + percent(core.share) + " of the time"}
          </p>
          <div class="stack" aria-hidden="true">
            {core.contexts.map(([name, share]) => (
              <span
                class={tint(name)}
                title={words(name) + " " + percent(share)}
                style={{ width: share * 100 + "%" }}
              />
            ))}
          </div>
          <ul class="legend plain">
            {core.contexts
              .filter((c) => c[1] >= 0.005)
              .map(([name, share]) => (
                <li>
                  <span class="item">
                    <span class={"key " + tint(name)} />
                    <span>
                      {words(name) + " "}
                      <span class="n">{percent(share)}</span>
                    </span>
                  </span>
                </li>
              ))}
          </ul>
        </div>
      ))}
    </div>
  );
  return (
    <Section id="cores" title="What ran on each core meanwhile">
      <div class="pair">
        {bars("During the messages in focus", focus)}
        {reference.length ? bars("During the reference messages", reference) : null}
      </div>
    </Section>
  );
}

export function Pervasive({ store }: { store: Store }) {
  const { page } = store.data,
    slices = page.diagnosis.more?.pervasive ?? [],
    looks = store.looks,
    causes = page.diagnosis.causes;
  if (!slices.length) return null;
  const ranks = [...new Set(slices.flatMap((s) => s.causes.map((c) => c[0])))]
    .filter((r) => looks.named(r - 1))
    .sort((a, b) => a - b);
  return (
    <Section
      id="pervasive"
      title="The most pervasive causes at every percentile"
      lede="The part of the messages of each slice of the latencies that have more of a cause than a reference message; the five most pervasive of each slice."
    >
      <Scroll label="Table of the most pervasive causes">
        <table class="heatmap">
          <thead>
            <tr>
              <th>Cause</th>
              {slices.map((slice) => (
                <th class="num">{percentile(slice.from) + "–" + percentile(slice.to).slice(1)}</th>
              ))}
            </tr>
            <tr class="sub">
              <th>mean latency</th>
              {slices.map((slice) => (
                <th class="num">{duration(slice.mean_ns)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {ranks.map((rank) => (
              <tr>
                <td class="what">
                  <Swatch looks={looks} cause={rank - 1} /> {looks.name(rank - 1)}
                  <small>
                    {page.categories[causes[rank - 1]!.category] + " on the " + page.roles[causes[rank - 1]!.role]}
                  </small>
                </td>
                {slices.map((slice) => {
                  const cell = slice.causes.find((c) => c[0] === rank);
                  return cell ? (
                    <td
                      class="num heat"
                      style={{ "--heat": (cell[1] * 55).toFixed(0) + "%" }}
                      title={
                        percent(cell[1]) +
                        " of the messages have more of it than usual, " +
                        more(cell[2]) +
                        " in the mean"
                      }
                    >
                      {Math.round(cell[1] * 100) + " %"}
                    </td>
                  ) : (
                    <td class="num heat none">·</td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}
