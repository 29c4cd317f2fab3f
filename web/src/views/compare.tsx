// View 6: this run beside another (NSight Figures 17, 18): which percentile of which leg moved; the causes above
// account for it.
import { Head, Scroll, Section } from "../parts";
import type { Store } from "../store";
import { count, duration, more, percent } from "../units";
import { legName } from "./overview";

export function Compare({ store }: { store: Store }) {
  const { page } = store.data,
    against = page.against,
    diagnosis = page.diagnosis;
  if (!against) return null;
  const names = ["receive", "service", "transmit", "total"].filter(
    (n) => diagnosis.legs?.[n] && against.legs[n]?.messages,
  );
  const keys = page.percentiles.filter((k) =>
    names.some((n) => diagnosis.legs[n]![k] !== undefined && against.legs[n]![k] !== undefined),
  );
  const moved = keys
    .map((k) => ({ k, by: (diagnosis.legs[diagnosis.leg]?.[k] ?? 0) - (against.legs[diagnosis.leg]?.[k] ?? 0) }))
    .sort((x, y) => Math.abs(y.by) - Math.abs(x.by))[0];
  const lede =
    (moved
      ? "Of the " + legName(diagnosis, diagnosis.leg) + " leg, " + moved.k + " moved most: " + more(moved.by) + ". "
      : "") +
    "The causes above account for the difference of the same slice of both runs; the curves of the other run are dashed in the distribution.";
  return (
    <Section id="compare" title={"Beside the run " + against.run} lede={lede}>
      <Scroll label="Table of both runs">
        <table>
          <Head cells={[["Leg"], ...keys.map((k): [string, boolean] => [k, true]), ["Messages", true]]} />
          <tbody>
            {names.flatMap((name) => [
              <tr>
                <td>
                  <b>{legName(diagnosis, name)}</b>
                  <small>this run</small>
                </td>
                {keys.map((k) => (
                  <td class="num">
                    {diagnosis.legs[name]![k] === undefined ? "N/A" : duration(diagnosis.legs[name]![k]!)}
                  </td>
                ))}
                <td class="num">{count(diagnosis.legs[name]!.messages)}</td>
              </tr>,
              <tr class="less same">
                <td>
                  <small>{against.run}</small>
                </td>
                {keys.map((k) => (
                  <td class="num">
                    {against.legs[name]![k] === undefined ? "N/A" : duration(against.legs[name]![k]!)}
                  </td>
                ))}
                <td class="num">{count(against.legs[name]!.messages)}</td>
              </tr>,
              <tr class="less same">
                <td>
                  <small>difference</small>
                </td>
                {keys.map((k) => {
                  const x = diagnosis.legs[name]![k],
                    y = against.legs[name]![k];
                  return (
                    <td class="num" data-ns={x !== undefined && y !== undefined ? x - y : undefined}>
                      {x === undefined || y === undefined
                        ? ""
                        : more(x - y) + (y > 0 ? " (" + (x >= y ? "+" : "") + percent((x - y) / y) + ")" : "")}
                    </td>
                  );
                })}
                <td />
              </tr>,
            ])}
          </tbody>
        </table>
      </Scroll>
    </Section>
  );
}
