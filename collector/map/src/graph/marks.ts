// Marks of states besides their colours, for readers with colour blindness: a sign on what is degraded, and dashed
// lines.
import type { State } from "../model/conditions";
import { STATES } from "../model/conditions";
import type { MapTheme } from "./api";

/** By code: colour, and how lines are broken (pixels on, off). */
export interface Looks {
  colour: string;
  dash: readonly number[];
}

const DASH: Record<State, readonly number[]> = {
  ok: [],
  missing: [3, 5],
  notReady: [10, 3],
  degraded: [6, 3],
  inconsistent: [8, 3, 2, 3],
  stale: [2, 3],
  unknown: [1, 4],
};

export function looksOf(theme: MapTheme): Looks[] {
  const colours: Record<State, string> = {
    ok: theme.ok,
    missing: theme.notReady,
    notReady: theme.notReady,
    degraded: theme.degraded,
    inconsistent: theme.inconsistent,
    stale: theme.stale,
    unknown: theme.unknown,
  };
  return STATES.map((state) => ({ colour: colours[state], dash: DASH[state] }));
}

/** Draw the sign of a state around (x, y), `r` pixels to each side; no sign for the state ok. */
export function sign(ctx: CanvasRenderingContext2D, state: State, x: number, y: number, r: number): void {
  ctx.beginPath();
  switch (state) {
    case "ok":
      return;
    case "missing": // a cross
      ctx.moveTo(x - r, y - r);
      ctx.lineTo(x + r, y + r);
      ctx.moveTo(x - r, y + r);
      ctx.lineTo(x + r, y - r);
      break;
    case "notReady": // an octagon with a minus
      for (let corner = 0; corner < 8; corner += 1) {
        const angle = ((corner + 0.5) * Math.PI) / 4;
        ctx.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
      }
      ctx.closePath();
      ctx.moveTo(x - 0.5 * r, y);
      ctx.lineTo(x + 0.5 * r, y);
      break;
    case "degraded": // a triangle
      ctx.moveTo(x, y - r);
      ctx.lineTo(x + r, y + 0.8 * r);
      ctx.lineTo(x - r, y + 0.8 * r);
      ctx.closePath();
      break;
    case "inconsistent": // not equal
      ctx.moveTo(x - r, y - 0.35 * r);
      ctx.lineTo(x + r, y - 0.35 * r);
      ctx.moveTo(x - r, y + 0.35 * r);
      ctx.lineTo(x + r, y + 0.35 * r);
      ctx.moveTo(x + 0.5 * r, y - r);
      ctx.lineTo(x - 0.5 * r, y + r);
      break;
    case "stale": // a clock
      ctx.arc(x, y, r, 0, 2 * Math.PI);
      ctx.moveTo(x, y - 0.6 * r);
      ctx.lineTo(x, y);
      ctx.lineTo(x + 0.5 * r, y);
      break;
    case "unknown": // a question mark
      ctx.arc(x, y - 0.4 * r, 0.5 * r, -Math.PI, 0.5 * Math.PI);
      ctx.lineTo(x, y + 0.4 * r);
      ctx.moveTo(x, y + 0.8 * r);
      ctx.lineTo(x, y + r);
      break;
  }
  ctx.stroke();
}
