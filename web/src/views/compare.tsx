// View 6: this run beside another (NSight Figures 17, 18): which percentile of which leg moved; the causes above
// account for it.
import { Head, Scroll, Section } from "../parts";
import type { Store } from "../store";
import { count, duration, more, percent } from "../units";
import { legName } from "./overview";

export function Compare({ store }: { store: Store }) {
  const { page } = store.data,
    a = page.against,
    d = page.diagnosis;
  if (!a) return null;
  const names = ["receive", "service", "transmit", "total"].filter((n) => d.legs?.[n] && a.legs[n]?.messages);
  const keys = page.percentiles.filter((k) =>
    names.some((n) => d.legs[n]![k] !== undefined && a.legs[n]![k] !== undefined),
  );
  const moved = keys
    .map((k) => ({ k, by: (d.legs[d.leg]?.[k] ?? 0) - (a.legs[d.leg]?.[k] ?? 0) }))
    .sort((x, y) => Math.abs(y.by) - Math.abs(x.by))[0];
  const lede =
    (moved ? "Of the " + legName(d, d.leg) + " leg, " + moved.k + " moved most: " + more(moved.by) + ". " : "") +
    "The causes above account for the difference of the same slice of both runs; the curves of the other run are dashed in the distribution.";
  return (
    <Section id="compare" title={"Beside the run " + a.run} lede={lede}>
      <Scroll label="Table of both runs">
        <table>
          <Head cells={[["Leg"], ...keys.map((k): [string, boolean] => [k, true]), ["Messages", true]]} />
          <tbody>
            {names.flatMap((n) => [
              <tr>
                <td>
                  <b>{legName(d, n)}</b>
                  <small>this run</small>
                </td>
                {keys.map((k) => (
                  <td class="num">{d.legs[n]![k] === undefined ? "N/A" : duration(d.legs[n]![k]!)}</td>
                ))}
                <td class="num">{count(d.legs[n]!.messages)}</td>
              </tr>,
              <tr class="less same">
                <td>
                  <small>{a.run}</small>
                </td>
                {keys.map((k) => (
                  <td class="num">{a.legs[n]![k] === undefined ? "N/A" : duration(a.legs[n]![k]!)}</td>
                ))}
                <td class="num">{count(a.legs[n]!.messages)}</td>
              </tr>,
              <tr class="less same">
                <td>
                  <small>difference</small>
                </td>
                {keys.map((k) => {
                  const x = d.legs[n]![k],
                    y = a.legs[n]![k];
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
