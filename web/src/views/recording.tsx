// The recording itself: what was lost, what it cost, devices, hooks, what to mind, what to do next.
import type { Store } from "../store";
import { Fix, Rich, Scroll, Section } from "../parts";
import { count, duration, plural, prose } from "../units";
import type { ComponentChildren } from "preact";
import type { NextStep } from "../types";

export function Recording({ store }: { store: Store }) {
  const { page } = store.data,
    meta = page.meta,
    diagnosis = page.diagnosis;
  const rows: [string, ComponentChildren][] = [["Lost", prose(page.lost)]];
  const cores = meta.cpus.filter((c) => c.lost > 0),
    off = meta.hooks.filter((h) => !h.on && !h.optional),
    on = meta.hooks.filter((h) => h.on);
  if (cores.length) rows.push(["Lost by core", cores.map((c) => "core " + c.cpu + ": " + count(c.lost)).join(", ")]);
  rows.push(["Cost", prose(page.cost)]);
  if (meta.overhead.recorder_cpu_ns)
    rows.push(["Recorder", duration(meta.overhead.recorder_cpu_ns) + " of CPU in its own threads"]);
  if (meta.sampling)
    rows.push([
      "Samples",
      plural(meta.sampling.samples, "sample") +
        ", one in " +
        duration(meta.sampling.period_ns) +
        " of each core" +
        (meta.sampling.lost ? ", " + count(meta.sampling.lost) + " lost" : "") +
        meta.sampling.notes.map((n) => "; " + n).join(""),
    ]);
  const unfinished = Object.entries(diagnosis.messages.incomplete);
  if (unfinished.length)
    rows.push([
      "Not followed",
      <ul>
        {unfinished.map(([why, messages]) => (
          <li>{count(messages) + ": " + why}</li>
        ))}
      </ul>,
    ]);
  if (diagnosis.messages.out_of_order)
    rows.push([
      "Out of order",
      plural(diagnosis.messages.out_of_order, "message") + " served after one that came later",
    ]);
  for (const [name, sent] of [
    ["Sent beside the replies (unasked, or further parts of them)", diagnosis.sent?.pushes],
    ["Asked of others", diagnosis.sent?.requests],
  ] as const)
    if (sent)
      rows.push([
        name,
        plural(sent.calls, "call") +
          ", " +
          plural(sent.bytes, "byte") +
          (sent.transmit_ns.p99 !== undefined ? ", p99 of transmit " + duration(sent.transmit_ns.p99) : "") +
          (sent.wait_ns?.p99 !== undefined ? ", p99 of the wait for the answer " + duration(sent.wait_ns.p99) : "") +
          (sent.peers.length ? ", to " + sent.peers.map(([p, n]) => p + " (" + count(n) + ")").join(", ") : ""),
      ]);
  if (meta.devices.length)
    rows.push([
      "Devices",
      <ul>
        {meta.devices.map((device) => (
          <li>
            <b>{device.name}</b>
            {" " +
              [
                device.driver,
                device.rx_queues || device.tx_queues
                  ? plural(device.rx_queues, "receive queue") + ", " + plural(device.tx_queues, "transmit queue")
                  : "",
                device.irqs.length ? "interrupts " + device.irqs.join(", ") : "no interrupts of its own",
                device.here ? "" : "in the target's network namespace",
                plural(device.packets, "packet") + " for the target",
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
        {off.map((hook) => (
          <li>
            <code>{hook.name}</code>
            {" " + (hook.reason || "no reason recorded")}
          </li>
        ))}
      </ul>,
    ]);
  if (meta.warnings.length)
    rows.push([
      "To mind",
      <ul>
        {meta.warnings.map((warning) => (
          <li>
            <Rich text={warning} />
          </li>
        ))}
      </ul>,
    ]);
  if (diagnosis.next_steps?.length)
    rows.push([
      "Next steps",
      <ul>
        {diagnosis.next_steps.map((step) => (
          <li>
            <Step step={step} />
          </li>
        ))}
      </ul>,
    ]);
  const embedded = page.timelines,
    others = embedded.ids.reduce((a, b) => a + b.length, 0) - embedded.focus;
  if (!page.served)
    rows.push([
      "In this file",
      plural(store.data.total, "message") +
        " as points; whole timelines of " +
        plural(embedded.focus, "message") +
        " in focus (of " +
        count(diagnosis.focus.messages) +
        ") and of " +
        plural(others, "other") +
        ", at random." +
        leftOut(embedded.of - embedded.focus - others),
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
                {on.map((hook) => (
                  <tr>
                    <td>
                      <code>{hook.name}</code>
                    </td>
                    <td>{hook.probe}</td>
                    <td class="num">{hook.ns_per_run === null ? "not measured" : hook.ns_per_run.toFixed(0)}</td>
                    <td class="num">{count(hook.measured_runs)}</td>
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

function leftOut(bytes: number): string {
  return bytes <= 0
    ? " None is left out."
    : bytes === 1
      ? " One is left out: tailsight view has it."
      : " The other " + count(bytes) + " are left out: tailsight view has them.";
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
