// The recording itself: what was lost, what it cost, devices, hooks, what to mind, what to do next.
import type { Store } from "../store";
import { Fix, Rich, Scroll, Section } from "../parts";
import { count, duration, plural, prose } from "../units";
import type { ComponentChildren } from "preact";
import type { NextStep } from "../types";

export function Recording({ store }: { store: Store }) {
  const { page } = store.data,
    m = page.meta,
    d = page.diagnosis;
  const rows: [string, ComponentChildren][] = [["Lost", prose(page.lost)]];
  const cores = m.cpus.filter((c) => c.lost > 0),
    off = m.hooks.filter((h) => !h.on && !h.optional),
    on = m.hooks.filter((h) => h.on);
  if (cores.length) rows.push(["Lost by core", cores.map((c) => "core " + c.cpu + ": " + count(c.lost)).join(", ")]);
  rows.push(["Cost", prose(page.cost)]);
  if (m.overhead.recorder_cpu_ns)
    rows.push(["Recorder", duration(m.overhead.recorder_cpu_ns) + " of CPU in its own threads"]);
  if (m.sampling)
    rows.push([
      "Samples",
      plural(m.sampling.samples, "sample") +
        ", one in " +
        duration(m.sampling.period_ns) +
        " of each core" +
        (m.sampling.lost ? ", " + count(m.sampling.lost) + " lost" : "") +
        m.sampling.notes.map((n) => "; " + n).join(""),
    ]);
  const unfinished = Object.entries(d.messages.incomplete);
  if (unfinished.length)
    rows.push([
      "Not followed",
      <ul>
        {unfinished.map(([why, n]) => (
          <li>{count(n) + ": " + why}</li>
        ))}
      </ul>,
    ]);
  if (d.messages.out_of_order)
    rows.push(["Out of order", plural(d.messages.out_of_order, "message") + " served after one that came later"]);
  for (const [name, of] of [
    ["Sent beside the replies (unasked, or further parts of them)", d.sent?.pushes],
    ["Asked of others", d.sent?.requests],
  ] as const)
    if (of)
      rows.push([
        name,
        plural(of.calls, "call") +
          ", " +
          plural(of.bytes, "byte") +
          (of.transmit_ns.p99 !== undefined ? ", p99 of transmit " + duration(of.transmit_ns.p99) : "") +
          (of.wait_ns?.p99 !== undefined ? ", p99 of the wait for the answer " + duration(of.wait_ns.p99) : "") +
          (of.peers.length ? ", to " + of.peers.map(([p, n]) => p + " (" + count(n) + ")").join(", ") : ""),
      ]);
  if (m.devices.length)
    rows.push([
      "Devices",
      <ul>
        {m.devices.map((v) => (
          <li>
            <b>{v.name}</b>
            {" " +
              [
                v.driver,
                v.rx_queues || v.tx_queues
                  ? plural(v.rx_queues, "receive queue") + ", " + plural(v.tx_queues, "transmit queue")
                  : "",
                v.irqs.length ? "interrupts " + v.irqs.join(", ") : "no interrupts of its own",
                v.here ? "" : "in the target's network namespace",
                plural(v.packets, "packet") + " for the target",
              ]
                .filter(Boolean)
                .join(" · ")}
          </li>
        ))}
      </ul>,
    ]);
  if (off.length)
    rows.push([
      "Hooks off",
      <ul>
        {off.map((h) => (
          <li>
            <code>{h.name}</code>
            {" " + (h.reason || "no reason recorded")}
          </li>
        ))}
      </ul>,
    ]);
  if (m.warnings.length)
    rows.push([
      "To mind",
      <ul>
        {m.warnings.map((w) => (
          <li>
            <Rich text={w} />
          </li>
        ))}
      </ul>,
    ]);
  if (d.next_steps?.length)
    rows.push([
      "Next steps",
      <ul>
        {d.next_steps.map((n) => (
          <li>
            <Step step={n} />
          </li>
        ))}
      </ul>,
    ]);
  const t = page.timelines,
    others = t.ids.reduce((a, b) => a + b.length, 0) - t.focus;
  if (!page.served)
    rows.push([
      "In this file",
      plural(store.data.total, "message") +
        " as points; whole timelines of " +
        plural(t.focus, "message") +
        " in focus (of " +
        count(d.focus.messages) +
        ") and of " +
        plural(others, "other") +
        ", at random." +
        leftOut(t.of - t.focus - others),
    ]);
  return (
    <Section id="record" title="The recording">
      <dl class="record">
        {rows.map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
      </dl>
      {on.length ? (
        <details>
          <summary>{plural(on.length, "hook") + " on, with what each cost"}</summary>
          <Scroll label="Table of the hooks">
            <table>
              <thead>
                <tr>
                  <th>Hook</th>
                  <th>Probe</th>
                  <th class="num">ns a run</th>
                  <th class="num">runs measured</th>
                </tr>
              </thead>
              <tbody>
                {on.map((h) => (
                  <tr>
                    <td>
                      <code>{h.name}</code>
                    </td>
                    <td>{h.probe}</td>
                    <td class="num">{h.ns_per_run === null ? "not measured" : h.ns_per_run.toFixed(0)}</td>
                    <td class="num">{count(h.measured_runs)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        </details>
      ) : null}
    </Section>
  );
}

function leftOut(n: number): string {
  return n <= 0
    ? " None is left out."
    : n === 1
      ? " One is left out: tailsight view has it."
      : " The other " + count(n) + " are left out: tailsight view has them.";
}

/** A step: prose, with a cause's fix or a command of ours behind it. */
function Step({ step }: { step: NextStep }) {
  const { says, fix, command } = step;
  if (!fix && !command) return <Rich text={says} />;
  return (
    <>
      {says ? prose(says) + ": " : ""}
      {fix ? <Fix fix={fix} /> : null}
      {command ? <code>{command}</code> : null}
    </>
  );
}
