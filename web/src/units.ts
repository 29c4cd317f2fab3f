// Times, counts and shares as text; prose that was written for a terminal.

/** As the terminal: what is exactly between two texts is the even one, of which `toFixed` takes the larger. */
export function fixed(v: number, digits: number): string {
  if (Math.abs((v * 2 ** (digits + 1)) % 2) !== 1) return v.toFixed(digits);
  const scale = 10 ** digits,
    below = Math.floor(v * scale);
  return ((below % 2 ? below + 1 : below) / scale).toFixed(digits);
}
export function digits3(v: number): string {
  return fixed(v, v < 9.995 ? 2 : v < 99.95 ? 1 : 0);
}
export function durationParts(ns: number): [string, string] {
  const a = Math.abs(ns),
    sign = ns < 0 ? "−" : "";
  if (a < 999.5) return [sign + Math.round(a), "ns"];
  for (const [unit, scale] of [
    ["µs", 1e3],
    ["ms", 1e6],
  ] as const)
    if (a / scale < 999.5) return [sign + digits3(a / scale), unit];
  return [sign + (a / 1e9 < 999.5 ? digits3(a / 1e9) : count(a / 1e9)), "s"];
}
export function duration(ns: number): string {
  return durationParts(ns).join(" ");
}
/** With a sign also where it is more. */
export function more(ns: number): string {
  return (ns > 0 ? "+" : "") + duration(ns);
}
const english = new Intl.NumberFormat("en-US");
export function count(n: number): string {
  return english.format(Math.round(n));
}
export function plural(n: number, noun: string): string {
  return count(n) + " " + noun + (n === 1 ? "" : "s");
}
export function percent(f: number): string {
  return (
    fixed(f * 100, 1)
      .replace(/^-0\.0$/, "0.0")
      .replace(/^(-?\d+)\.0$/, (t, n) => (Math.abs(+n) >= 100 ? n : t))
      .replace("-", "−") + " %"
  );
}
export function percentile(q: number): string {
  return "p" + +(q * 100).toFixed(4);
}
/** µs for us, and no line break between a number and its unit. */
export function prose(text: string): string {
  return String(text).replace(
    /(\d) (ns|us|ms|s|%)(?![\w/])/g,
    (_, d, unit) => d + "\u00a0" + (unit === "us" ? "µs" : unit),
  );
}
/** As few digits as the value needs. */
export function tick(ns: number): string {
  const a = Math.abs(ns),
    [unit, scale]: [string, number] =
      a >= 1e9 ? ["s", 1e9] : a >= 1e6 ? ["ms", 1e6] : a >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  return (ns < 0 ? "−" : "") + +(a / scale).toPrecision(6) + " " + unit;
}
/** A name that may be 10 kB long, short enough for a label. */
export function short(text: string, most = 80): string {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}
