// Views 1 and 8: the causes with their shares, in words, with evidence, functions, fixes and their undo.
import { useState } from "preact/hooks";
import type { Store } from "../store";
import { open, useStore } from "../store";
import type { Cause, Diagnosis } from "../types";
import { whatIf } from "./boxes";
import { firstCause } from "./overview";
import { Bar, Fix, guessed, Head, Rich, Scroll, Section, Swatch } from "../parts";
import { count, duration, more, percent, plural, prose } from "../units";

/** Rows below this share, or after so many, are folded into one. */
const SMALL = 0.01,
  MOST = 12;

export function Causes({ store }: { store: Store }) {
  const state = useStore(store),
    { page } = store.data,
    diagnosis = page.diagnosis,
    causes = diagnosis.causes,
    looks = store.looks;
  const [unfolded, unfold] = useState(false);
  if (!causes.length)
    return (
      <Section
        id="causes"
        title="Why: the causes"
        lede={
          diagnosis.not_available
            ? "No causes can be said. " + diagnosis.not_available + "."
            : "No cause was found: the messages in focus deviate from the reference by nothing that was recorded."
        }
      >
        {null}
      </Section>
    );
  const partsOf = (coverage: { overall: number; p50: number; min: number }) =>
    percent(coverage.overall) +
    " of it (in half of the messages " +
    percent(coverage.p50) +
    " or more, in the worst " +
    percent(coverage.min) +
    ")";
  const lede =
    "Compared: " +
    plural(diagnosis.focus.messages, "message") +
    " in focus (mean " +
    duration(diagnosis.focus.mean_ns) +
    ") with " +
    plural(diagnosis.reference.messages, "reference message") +
    (diagnosis.against ? " of the run " + diagnosis.against : "") +
    " (mean " +
    duration(diagnosis.reference.mean_ns) +
    "). The rows add up to the difference. The causes, rows that are not chance, explain " +
    partsOf(diagnosis.coverage) +
    ". Of " +
    partsOf(diagnosis.owned) +
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
            {causes.map((cause, i) => (
              <>
                {folds && small[0]![1] === i ? fold : null}
                {folds && isSmall(cause, i) && !unfolded ? null : (
                  <CauseRow store={store} cause={cause} i={i} top={top} chosen={state.cause === i} first={i === 0} />
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
  cause,
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
        cause.name && cause.name !== cause.category ? page.categories[cause.category] + " on the " : "on the ",
        page.roles[cause.role],
        cause.inferred ? ", inferred" : "",
        guessed(cause),
      ].join("")
    : cause.category === "unexplained"
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
      <tr class={(named && cause.share >= 0 ? "" : "less") + (chosen ? " chosen" : "")} data-rank={cause.rank}>
        <td class="num">{named ? cause.rank : ""}</td>
        <td class="what">
          <Swatch looks={looks} cause={i} /> {name}
          <small>{what}</small>
        </td>
        <td class="share">
          <Bar share={cause.share} top={top} color={looks.css(i)} />
        </td>
        <td class="num" data-ns={cause.deviation_ns}>
          {more(cause.deviation_ns)}
        </td>
        <td class="num">
          {cause.ci95_ns[0] === cause.ci95_ns[1]
            ? "–"
            : duration(cause.ci95_ns[0]) + " … " + duration(cause.ci95_ns[1])}
        </td>
        <td class="num">
          {cause.category === "not-significant"
            ? ""
            : count(cause.messages) + " of " + count(page.diagnosis.focus.messages)}
        </td>
      </tr>
      <Detail store={store} cause={cause} i={i} open={first || chosen} />
    </>
  );
}

function Detail({ store, cause, i, open: unfolded }: { store: Store; cause: Cause; i: number; open: boolean }) {
  const diagnosis = store.data.page.diagnosis,
    facts = factsOf(diagnosis, cause);
  const named = store.looks.named(i),
    evidence = cause.paths.length || cause.evidence.length || facts.length;
  const chance = cause.category === "not-significant" ? (diagnosis.not_significant ?? []) : [];
  if (!cause.explanation && !cause.steps?.length && !evidence && !chance.length) return null;
  return (
    <tr class={"detail" + (named && cause.share >= 0 ? "" : " less")}>
      <td />
      <td colSpan={5}>
        <div class="inner">
          {cause.explanation && cause !== firstCause(store) ? (
            <p>
              <Rich text={cause.explanation} />
            </p>
          ) : null}
          {chance.length ? (
            <details>
              <summary>{"What was ruled out: " + plural(chance.length, "row") + " whose interval holds 0"}</summary>
              <table class="paths">
                <tbody>
                  {chance.map((cause, k) => (
                    <tr>
                      <td>{store.data.page.chance_titles[k]}</td>
                      <td>
                        {store.data.page.categories[cause.category] + " on the " + store.data.page.roles[cause.role]}
                      </td>
                      <td class="num">{more(cause.deviation_ns)}</td>
                      <td class="num">{duration(cause.ci95_ns[0]) + " … " + duration(cause.ci95_ns[1])}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </details>
          ) : null}
          {cause.steps?.length || evidence ? (
            <details open={unfolded}>
              <summary>{cause.steps?.length ? "Fix and evidence" : "Evidence"}</summary>
              <div class="columns">
                {cause.steps?.length ? (
                  <div>
                    <h3>What removes it</h3>
                    <ul>{removers(cause)}</ul>
                  </div>
                ) : null}
                {evidence ? (
                  <div>
                    <h3>Evidence</h3>
                    {facts.map((f) => (
                      <p>{f}</p>
                    ))}
                    {cause.paths.length ? (
                      <table class="paths">
                        <tbody>
                          {cause.paths.map(([path, ns]) => (
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
                    {cause.evidence.length ? (
                      <p class="ids">
                        {"Hit most: "}
                        {cause.evidence.slice(0, 8).map((id) => (
                          <button type="button" onClick={() => open(store, id)}>
                            {"message " + count(id)}
                          </button>
                        ))}
                        {" In full: "}
                        <code>{"tailsight show " + diagnosis.run + " " + cause.evidence[0]}</code>
                      </p>
                    ) : null}
                    <FunctionsOf store={store} cause={cause} />
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

function factsOf(diagnosis: Diagnosis, cause: Cause): string[] {
  const facts: string[] = [];
  if (cause.times && cause.times[0] > 0)
    facts.push(
      "It began " +
        times(cause.times[0]) +
        " in a mean message in focus, " +
        times(cause.times[1]) +
        " in a mean reference message.",
    );
  if (cause.how && cause.mean_ns)
    facts.push(
      "Found as " +
        cause.how.replace("-", " ") +
        " (" +
        cause.phase +
        "): " +
        duration(cause.mean_ns[0]) +
        " in a message in focus, " +
        duration(cause.mean_ns[1]) +
        " in a reference message.",
    );
  if (cause.before) facts.push("Before it ran " + cause.before + ".");
  if (cause.ahead && cause.ahead.focus > 0)
    facts.push(
      "Messages ahead: " +
        cause.ahead.focus.toFixed(1) +
        " on average, of a reference message " +
        cause.ahead.reference.toFixed(1) +
        ".",
    );
  for (const root of cause.root ?? [])
    facts.push(
      "What held the messages ahead: " +
        root.name +
        ", " +
        percent(root.share) +
        " of it, " +
        duration(root.mean_ns) +
        " longer each of " +
        plural(root.messages, "message") +
        ".",
    );
  const without = whatIf(diagnosis),
    what = without?.of.get(cause.rank - 1);
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
        duration(diagnosis.latency_ns[without.key]!) +
        ", as a replay predicts it.",
    );
  if (cause.who) facts.push(...who(cause.who));
  return facts;
}

/** The process that a cause is: how many, where they belong, and their threads by name. */
function who(task: NonNullable<Cause["who"]>): string[] {
  const others = task.processes > task.pids.length ? " and " + (task.processes - task.pids.length) + " more" : "";
  const facts = [
    (task.processes > 1 ? task.processes + " processes (" : "Process ") +
      task.pids.join(", ") +
      others +
      (task.processes > 1 ? ")" : "") +
      " " +
      task.comm +
      ", " +
      plural(task.threads, "thread") +
      (task.container ? ", in container " + task.container.slice(0, 12) : "") +
      (task.unit ? ", unit " + task.unit : task.cgroup ? ", control group " + task.cgroup : "") +
      ".",
  ];
  if (task.by_thread.length > 1 || task.by_thread.some((t) => t.name !== task.comm))
    facts.push(
      "By thread: " +
        task.by_thread
          .map((t) => t.name + (t.threads > 1 ? " (" + t.threads + ")" : "") + " " + duration(t.deviation_ns))
          .join(", ") +
        ".",
    );
  return facts;
}

/** What tailsight fix makes and takes back, by its command; then what is left to be done by hand. */
function removers(cause: Cause) {
  const actions = cause.actions ?? [],
    byHand = (cause.steps ?? []).filter((_, i) => !actions.some((a) => a.shell.includes(i)));
  return [
    ...actions.map((action) => (
      <li>
        <code class="command">{action.command}</code>
        <span class="why">{prose(action.title)}</span>
        {action.says.map((s) => (
          <span class="why">{s}</span>
        ))}
        <span class="why">
          undo: <code>tailsight fix --undo</code>
          {action.undo.length ? " (" + action.undo.join("; ") + ")" : ""}
        </span>
      </li>
    )),
    ...byHand.map((fix) => (
      <li>
        <Fix fix={fix} />
      </li>
    )),
  ];
}

function FunctionsOf({ store, cause }: { store: Store; cause: Cause }) {
  if (!cause.functions?.length) return null;
  return (
    <>
      <h3>Functions</h3>
      <table class="paths">
        <tbody>
          {cause.functions.map((part) => (
            <tr>
              <td class="num">{percent(part.share)}</td>
              <td class="num">{more(part.deviation_ns)}</td>
              <td>
                <button
                  type="button"
                  class="link"
                  onClick={() => {
                    store.set({ fn: part.name });
                    document.getElementById("functions-title")?.scrollIntoView();
                  }}
                >
                  {part.name}
                </button>{" "}
                {[
                  part.inside ? "in " + part.inside : "",
                  part.module,
                  part.source,
                  part.how === "unexpected" ? "in no sample of the reference" : "",
                  part.runtime ? part.runtime.of + ": " + part.runtime.does : "",
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
  const total = groups.reduce((a, g) => a + g.messages, 0);
  return (
    <Section id="groups" title="The slow messages by what slowed them most">
      <Scroll label="Table of the slow messages by cause">
        <table class="causes">
          <Head cells={[["Mostly"], ["Messages in focus"], ["", true], ["Mean", true], ["The slowest of them"]]} />
          <tbody>
            {groups.map((cluster) => {
              const i = cluster.rank - 1;
              return (
                <tr class={looks.named(i) ? "" : "less"}>
                  <td class="what">
                    <Swatch looks={looks} cause={i} /> <b>{looks.name(i)}</b>
                    {looks.named(i) ? (
                      <small>{page.categories[cluster.category] + " on the " + page.roles[cluster.role]}</small>
                    ) : null}
                  </td>
                  <td class="share">
                    <Bar share={cluster.messages / total} top={1} color={looks.css(i)} />
                  </td>
                  <td class="num">{count(cluster.messages)}</td>
                  <td class="num">{duration(cluster.mean_ns)}</td>
                  <td>
                    <button type="button" class="link" onClick={() => open(store, cluster.example)}>
                      {"message " + count(cluster.example)}
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
