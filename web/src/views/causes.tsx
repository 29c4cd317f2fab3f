// Views 1 and 8: the causes with their shares, in words, with evidence, functions, fixes and their undo.
import { useState } from "preact/hooks";
import type { Store } from "../store";
import { open, useStore } from "../store";
import type { Cause, Diagnosis } from "../types";
import { whatIf } from "./boxes";
import { firstCause } from "./overview";
import { Bar, Fix, Head, Rich, Scroll, Section, Swatch } from "../parts";
import { count, duration, more, percent, plural, prose } from "../units";

/** Rows below this share, or after so many, are folded into one. */
const SMALL = 0.01,
  MOST = 12;

export function Causes({ store }: { store: Store }) {
  const state = useStore(store),
    { page } = store.data,
    d = page.diagnosis,
    causes = d.causes,
    looks = store.looks;
  const [unfolded, unfold] = useState(false);
  if (!causes.length)
    return (
      <Section
        id="causes"
        title="Why: the causes"
        lede={
          d.not_available
            ? "No causes can be said. " + d.not_available + "."
            : "No cause was found: the messages in focus deviate from the reference by nothing that was recorded."
        }
      >
        {null}
      </Section>
    );
  const partsOf = (c: { overall: number; p50: number; min: number }) =>
    percent(c.overall) +
    " of it (in half of the messages " +
    percent(c.p50) +
    " or more, in the worst " +
    percent(c.min) +
    ")";
  const lede =
    "Compared: " +
    plural(d.focus.messages, "message") +
    " in focus (mean " +
    duration(d.focus.mean_ns) +
    ") with " +
    plural(d.reference.messages, "reference message") +
    (d.against ? " of the run " + d.against : "") +
    " (mean " +
    duration(d.reference.mean_ns) +
    "). The rows add up to the difference. The causes, rows that are not chance, explain " +
    partsOf(d.coverage) +
    ". Of " +
    partsOf(d.owned) +
    " the owner is known. Press a cause to see it alone in every view.";
  const top = Math.max(...causes.map((c) => Math.abs(c.share)), 1e-9);
  const isSmall = (c: Cause, i: number) =>
    looks.named(i) && (Math.abs(c.share) < SMALL || i >= MOST) && state.cause !== i;
  const small = causes.map((c, i) => [c, i] as const).filter(([c, i]) => isSmall(c, i)),
    folds = small.length > 1;
  const sum = (f: (c: Cause) => number) => small.reduce((a, [c]) => a + f(c), 0);
  const fold = (
    <tr class="less">
      <td>…</td>
      <td>
        <button
          class="link"
          type="button"
          aria-expanded={unfolded ? "true" : "false"}
          onClick={() => unfold(!unfolded)}
        >
          {(unfolded ? "Hide " : "Show ") + small.length + " smaller causes"}
        </button>
      </td>
      <td class="share">
        <div class="sharebar">
          <b>{percent(sum((c) => c.share))}</b>
          <span>together</span>
        </div>
      </td>
      <td class="num">{duration(sum((c) => c.deviation_ns))}</td>
      <td />
      <td />
    </tr>
  );
  return (
    <Section id="causes" title="Why: the causes" lede={lede}>
      <Scroll label="Table of the causes">
        <table class="causes" id="causes-table">
          <Head
            cells={[
              [""],
              ["Cause"],
              ["Share of the delay"],
              ["Per message", true],
              ["95 % interval", true],
              ["Messages hit", true],
            ]}
          />
          <tbody>
            {causes.map((c, i) => (
              <>
                {folds && small[0]![1] === i ? fold : null}
                {folds && isSmall(c, i) && !unfolded ? null : (
                  <CauseRow store={store} cause={c} i={i} top={top} chosen={state.cause === i} first={i === 0} />
                )}
              </>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}

function CauseRow({
  store,
  cause: c,
  i,
  top,
  chosen,
  first,
}: {
  store: Store;
  cause: Cause;
  i: number;
  top: number;
  chosen: boolean;
  first: boolean;
}) {
  const { page } = store.data,
    looks = store.looks,
    named = looks.named(i);
  const what = named
    ? [
        c.name && c.name !== c.category ? page.categories[c.category] + " on the " : "on the ",
        page.roles[c.role],
        c.inferred ? ", inferred" : "",
      ].join("")
    : c.category === "unexplained"
      ? "what the recording cannot tell"
      : "may be chance";
  const name = named ? (
    <button
      type="button"
      class="name"
      aria-pressed={chosen ? "true" : "false"}
      onClick={() => store.set({ cause: chosen ? null : i })}
    >
      <b>{looks.name(i)}</b>
    </button>
  ) : (
    <b>{looks.name(i)}</b>
  );
  return (
    <>
      <tr class={(named && c.share >= 0 ? "" : "less") + (chosen ? " chosen" : "")} data-rank={c.rank}>
        <td class="num">{named ? c.rank : ""}</td>
        <td class="what">
          <Swatch looks={looks} cause={i} /> {name}
          <small>{what}</small>
        </td>
        <td class="share">
          <Bar share={c.share} top={top} color={looks.css(i)} />
        </td>
        <td class="num" data-ns={c.deviation_ns}>
          {more(c.deviation_ns)}
        </td>
        <td class="num">
          {c.ci95_ns[0] === c.ci95_ns[1] ? "–" : duration(c.ci95_ns[0]) + " … " + duration(c.ci95_ns[1])}
        </td>
        <td class="num">
          {c.category === "not-significant" ? "" : count(c.messages) + " of " + count(page.diagnosis.focus.messages)}
        </td>
      </tr>
      <Detail store={store} cause={c} i={i} open={first || chosen} />
    </>
  );
}

function Detail({ store, cause: c, i, open: unfolded }: { store: Store; cause: Cause; i: number; open: boolean }) {
  const d = store.data.page.diagnosis,
    facts = factsOf(d, c);
  const named = store.looks.named(i),
    evidence = c.paths.length || c.evidence.length || facts.length;
  const chance = c.category === "not-significant" ? (d.not_significant ?? []) : [];
  if (!c.explanation && !c.steps?.length && !evidence && !chance.length) return null;
  return (
    <tr class={"detail" + (named && c.share >= 0 ? "" : " less")}>
      <td />
      <td colSpan={5}>
        <div class="inner">
          {c.explanation && c !== firstCause(store) ? (
            <p>
              <Rich text={c.explanation} />
            </p>
          ) : null}
          {chance.length ? (
            <details>
              <summary>{"What was ruled out: " + plural(chance.length, "row") + " whose interval holds 0"}</summary>
              <table class="paths">
                <tbody>
                  {chance.map((r, k) => (
                    <tr>
                      <td>{store.data.page.chance_titles[k]}</td>
                      <td>{store.data.page.categories[r.category] + " on the " + store.data.page.roles[r.role]}</td>
                      <td class="num">{more(r.deviation_ns)}</td>
                      <td class="num">{duration(r.ci95_ns[0]) + " … " + duration(r.ci95_ns[1])}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </details>
          ) : null}
          {c.steps?.length || evidence ? (
            <details open={unfolded}>
              <summary>{c.steps?.length ? "Fix and evidence" : "Evidence"}</summary>
              <div class="columns">
                {c.steps?.length ? (
                  <div>
                    <h3>What removes it</h3>
                    <ul>{removers(c)}</ul>
                  </div>
                ) : null}
                {evidence ? (
                  <div>
                    <h3>Evidence</h3>
                    {facts.map((f) => (
                      <p>{f}</p>
                    ))}
                    {c.paths.length ? (
                      <table class="paths">
                        <tbody>
                          {c.paths.map(([path, ns]) => (
                            <tr>
                              <td class="num">{duration(ns)}</td>
                              <td>
                                <code>{path}</code>
                              </td>
                            </tr>
                          ))}
                        </tbody>
                      </table>
                    ) : null}
                    {c.evidence.length ? (
                      <p class="ids">
                        {"Hit most: "}
                        {c.evidence.slice(0, 8).map((id) => (
                          <button type="button" onClick={() => open(store, id)}>
                            {"message " + count(id)}
                          </button>
                        ))}
                        {" In full: "}
                        <code>{"tailsight show " + d.run + " " + c.evidence[0]}</code>
                      </p>
                    ) : null}
                    <FunctionsOf store={store} cause={c} />
                  </div>
                ) : null}
              </div>
            </details>
          ) : null}
        </div>
      </td>
    </tr>
  );
}

/** How often, as a mean: never, once, 2.3 times. */
function times(mean: number): string {
  const shown = mean < 10 ? String(+mean.toFixed(mean < 1 ? 2 : 1)) : count(mean);
  return mean === 0 ? "never" : shown === "0" ? "less than 0.01 times" : shown === "1" ? "once" : shown + " times";
}

function factsOf(d: Diagnosis, c: Cause): string[] {
  const facts: string[] = [];
  if (c.times && c.times[0] > 0)
    facts.push(
      "It began " +
        times(c.times[0]) +
        " in a mean message in focus, " +
        times(c.times[1]) +
        " in a mean reference message.",
    );
  if (c.how && c.mean_ns)
    facts.push(
      "Found as " +
        c.how.replace("-", " ") +
        " (" +
        c.phase +
        "): " +
        duration(c.mean_ns[0]) +
        " in a message in focus, " +
        duration(c.mean_ns[1]) +
        " in a reference message.",
    );
  if (c.before) facts.push("Before it ran " + c.before + ".");
  if (c.ahead && c.ahead.focus > 0)
    facts.push(
      "Messages ahead: " +
        c.ahead.focus.toFixed(1) +
        " on average, of a reference message " +
        c.ahead.reference.toFixed(1) +
        ".",
    );
  for (const r of c.root ?? [])
    facts.push(
      "What held the messages ahead: " +
        r.name +
        ", " +
        percent(r.share) +
        " of it, " +
        duration(r.mean_ns) +
        " longer each of " +
        plural(r.messages, "message") +
        ".",
    );
  const without = whatIf(d),
    what = without?.of.get(c.rank - 1);
  if (without && what)
    facts.push(
      "What if it were absent: " +
        without.key +
        " " +
        duration(what.ns) +
        " (" +
        duration(what.ci[0]) +
        " … " +
        duration(what.ci[1]) +
        ") instead of " +
        duration(d.latency_ns[without.key]!) +
        ", as a replay predicts it.",
    );
  if (c.who) facts.push(...who(c.who));
  return facts;
}

/** The process that a cause is: how many, where they belong, and their threads by name. */
function who(w: NonNullable<Cause["who"]>): string[] {
  const others = w.processes > w.pids.length ? " and " + (w.processes - w.pids.length) + " more" : "";
  const facts = [
    (w.processes > 1 ? w.processes + " processes (" : "Process ") +
      w.pids.join(", ") +
      others +
      (w.processes > 1 ? ")" : "") +
      " " +
      w.comm +
      ", " +
      plural(w.threads, "thread") +
      (w.container ? ", in container " + w.container.slice(0, 12) : "") +
      (w.unit ? ", unit " + w.unit : w.cgroup ? ", control group " + w.cgroup : "") +
      ".",
  ];
  if (w.by_thread.length > 1 || w.by_thread.some((t) => t.name !== w.comm))
    facts.push(
      "By thread: " +
        w.by_thread
          .map((t) => t.name + (t.threads > 1 ? " (" + t.threads + ")" : "") + " " + duration(t.deviation_ns))
          .join(", ") +
        ".",
    );
  return facts;
}

/** What tailsight fix makes and takes back, by its command; then what is left to be done by hand. */
function removers(c: Cause) {
  const actions = c.actions ?? [],
    byHand = (c.steps ?? []).filter((_, i) => !actions.some((a) => a.shell.includes(i)));
  return [
    ...actions.map((a) => (
      <li>
        <code class="command">{a.command}</code>
        <span class="why">{prose(a.title)}</span>
        {a.says.map((s) => (
          <span class="why">{s}</span>
        ))}
        <span class="why">
          undo: <code>tailsight fix --undo</code>
          {a.undo.length ? " (" + a.undo.join("; ") + ")" : ""}
        </span>
      </li>
    )),
    ...byHand.map((f) => (
      <li>
        <Fix fix={f} />
      </li>
    )),
  ];
}

function FunctionsOf({ store, cause: c }: { store: Store; cause: Cause }) {
  if (!c.functions?.length) return null;
  return (
    <>
      <h3>Functions</h3>
      <table class="paths">
        <tbody>
          {c.functions.map((f) => (
            <tr>
              <td class="num">{percent(f.share)}</td>
              <td class="num">{more(f.deviation_ns)}</td>
              <td>
                <button
                  type="button"
                  class="link"
                  onClick={() => {
                    store.set({ fn: f.name });
                    document.getElementById("functions-title")?.scrollIntoView();
                  }}
                >
                  {f.name}
                </button>{" "}
                {[
                  f.inside ? "in " + f.inside : "",
                  f.module,
                  f.source,
                  f.how === "unexpected" ? "in no sample of the reference" : "",
                  f.runtime ? f.runtime.of + ": " + f.runtime.does : "",
                ]
                  .filter(Boolean)
                  .join(" · ")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** The messages in focus by the cause that most of their own delay is. */
export function Groups({ store }: { store: Store }) {
  const { page } = store.data,
    groups = page.diagnosis.clusters ?? [],
    looks = store.looks;
  if (groups.length < 2) return null;
  const all = groups.reduce((a, g) => a + g.messages, 0);
  return (
    <Section id="groups" title="The slow messages by what slowed them most">
      <Scroll label="Table of the slow messages by cause">
        <table class="causes">
          <Head cells={[["Mostly"], ["Messages in focus"], ["", true], ["Mean", true], ["The slowest of them"]]} />
          <tbody>
            {groups.map((g) => {
              const i = g.rank - 1;
              return (
                <tr class={looks.named(i) ? "" : "less"}>
                  <td class="what">
                    <Swatch looks={looks} cause={i} /> <b>{looks.name(i)}</b>
                    {looks.named(i) ? (
                      <small>{page.categories[g.category] + " on the " + page.roles[g.role]}</small>
                    ) : null}
                  </td>
                  <td class="share">
                    <Bar share={g.messages / all} top={1} color={looks.css(i)} />
                  </td>
                  <td class="num">{count(g.messages)}</td>
                  <td class="num">{duration(g.mean_ns)}</td>
                  <td>
                    <button type="button" class="link" onClick={() => open(store, g.example)}>
                      {"message " + count(g.example)}
                    </button>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}
