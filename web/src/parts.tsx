// Small parts of all views: swatches, bars, commands, text with commands in it.
import { useEffect, useRef } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Fix as FixData } from "./types";
import { drawShape, ink, onScheme, type Looks } from "./theme";
import { percent, prose } from "./units";

export function Swatch({ looks, cause }: { looks: Looks; cause: number | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const draw = () => {
      const ctx = canvas.current!.getContext("2d")!,
        shape = looks.shape(cause);
      ctx.clearRect(0, 0, 32, 32);
      drawShape(ctx, shape, 16, 16, 10);
      if (shape === "ring") {
        ctx.strokeStyle = ink("other");
        ctx.lineWidth = 4;
        ctx.stroke();
      } else {
        ctx.fillStyle = looks.color(cause);
        ctx.fill();
      }
    };
    draw();
    return onScheme(draw);
  }, [looks, cause]);
  return <canvas class="swatch" width={32} height={32} aria-hidden="true" ref={canvas} />;
}

export function Bar({ share, top, color, title }: { share: number; top: number; color: string; title?: string }) {
  return (
    <div class="sharebar" title={title}>
      <b>{percent(share)}</b>
      <div class={"track" + (share < 0 ? " negative" : "")} aria-hidden="true">
        <i style={{ width: Math.min(100, (Math.abs(share) / top) * 100) + "%", background: color }} />
      </div>
    </div>
  );
}

/** Text with `commands` between back quotes set as code. */
export function Rich({ text }: { text: string }) {
  return (
    <>
      {String(text)
        .split("`")
        .map((part, i, all) => (i % 2 === 1 && i < all.length - 1 ? <code>{part}</code> : prose(part)))}
    </>
  );
}

/** A fix: a command, what it is for and its undo, or a step in prose. */
export function Fix({ fix }: { fix: FixData }) {
  if (!fix.command) return <Rich text={fix.why} />;
  return (
    <>
      <code class="command">{(fix.fill_in ? "fill in: " : "") + fix.command}</code>
      <span class="why">{prose(fix.why)}</span>
      {fix.undo ? (
        <span class="why">
          undo: <code>{fix.undo}</code>
        </span>
      ) : null}
    </>
  );
}

export function Head({ cells }: { cells: [ComponentChildren, boolean?][] }) {
  return (
    <thead>
      <tr>{cells.map(([text, num]) => (text === "" ? <td /> : <th class={num ? "num" : ""}>{text}</th>))}</tr>
    </thead>
  );
}

/** What may be wider than the window: it then scrolls, by keyboard too. */
export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const scrolled = box.current!,
      look = () => {
        const scrolls =
          scrolled.scrollWidth > scrolled.clientWidth + 1 || scrolled.scrollHeight > scrolled.clientHeight + 1;
        for (const [name, value] of [
          ["tabindex", "0"],
          ["role", "region"],
          ["aria-label", label],
        ] as const)
          if (scrolls) scrolled.setAttribute(name, value);
          else scrolled.removeAttribute(name);
      };
    const sized = new ResizeObserver(look);
    sized.observe(scrolled);
    for (const inside of scrolled.children) sized.observe(inside);
    return () => sized.disconnect();
  }, [label]);
  return (
    <div class="scroll" ref={box}>
      {children}
    </div>
  );
}

export function Section(props: {
  id: string;
  title: string;
  aside?: ComponentChildren;
  lede?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section aria-labelledby={props.id + "-title"} id={props.id}>
      <div class="titlebar">
        <h2 id={props.id + "-title"}>{props.title}</h2>
        {props.aside}
      </div>
      {props.lede ? <p class="lede">{props.lede}</p> : null}
      {props.children}
    </section>
  );
}

export function Switch<T extends string>(props: {
  label: string;
  value: T;
  options: [T, string][];
  choose: (value: T) => void;
}) {
  return (
    <div class="switch" role="group" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <button
          type="button"
          aria-pressed={value === props.value ? "true" : "false"}
          onClick={() => props.choose(value)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

/** What is said behind a row of which the order of calls alone tells whose it is. */
export function guessed(row: { guessed?: number | null }): string {
  if (!row.guessed) return "";
  return row.guessed >= 0.5 ? ", guessed" : ", partly guessed";
}
