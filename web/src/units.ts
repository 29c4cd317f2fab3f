// Times, counts and shares as text; prose that was written for a terminal.

/** As the terminal: what is exactly between two texts is the even one, of which `toFixed` takes the larger. */
export function fixed(value: number, digits: number): string {
  if (Math.abs((value * 2 ** (digits + 1)) % 2) !== 1) return value.toFixed(digits);
  const scale = 10 ** digits,
    below = Math.floor(value * scale);
  return ((below % 2 ? below + 1 : below) / scale).toFixed(digits);
}
export function digits3(value: number): string {
  return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}
export function durationParts(ns: number): [string, string] {
  const size = Math.abs(ns),
    sign = ns < 0 ? "−" : "";
  if (size < 999.5) return [sign + Math.round(size), "ns"];
  for (const [unit, scale] of [
    ["µs", 1e3],
    ["ms", 1e6],
  ] as const)
    if (size / scale < 999.5) return [sign + digits3(size / scale), unit];
  return [sign + (size / 1e9 < 999.5 ? digits3(size / 1e9) : count(size / 1e9)), "s"];
}
export function duration(ns: number): string {
  return durationParts(ns).join(" ");
}
/** With a sign also where it is more. */
export function more(ns: number): string {
  return (ns > 0 ? "+" : "") + duration(ns);
}
const english = new Intl.NumberFormat("en-US");
export function count(value: number): string {
  return english.format(Math.round(value));
}
export function plural(value: number, noun: string): string {
  return count(value) + " " + noun + (value === 1 ? "" : "s");
}
export function percent(share: number): string {
  return (
    fixed(share * 100, 1)
      .replace(/^-0\.0$/, "0.0")
      .replace(/^(-?\d+)\.0$/, (t, n) => (Math.abs(+n) >= 100 ? n : t))
      .replace("-", "−") + " %"
  );
}
export function percentile(quantile: number): string {
  return "p" + +(quantile * 100).toFixed(4);
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
  const size = Math.abs(ns),
    [unit, scale]: [string, number] =
      size >= 1e9 ? ["s", 1e9] : size >= 1e6 ? ["ms", 1e6] : size >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  return (ns < 0 ? "−" : "") + +(size / scale).toPrecision(6) + " " + unit;
}
/** A name that may be 10 kB long, short enough for a label. */
export function short(text: string, most = 80): string {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}
