// Formats times as an age or a date. The clock is passed in, because the page may show the past, and for tests.

const STEPS: readonly [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** "12 s", "3 min 20 s", "2 d 4 h". A negative span (clocks differ) is "0 s". */
export function span(ms: number): string {
  let left_s = Math.max(0, Math.floor(ms / 1000));
  const parts: string[] = [];
  for (const [size_s, unit] of STEPS) {
    const n = Math.floor(left_s / size_s);
    if (n > 0) {
      parts.push(`${n} ${unit}`);
      left_s -= n * size_s;
    }
    if (parts.length === 2 || (parts.length === 1 && size_s >= 60 && n === 0)) break;
  }
  return parts.join(" ") || "0 s";
}

export function ago(atMs: number, nowMs: number): string {
  const ms = nowMs - atMs;
  return ms < 1000 ? "just now" : `${span(ms)} ago`;
}

const two = (n: number): string => String(n).padStart(2, "0");

/** "14:03:07" on the same day, else "2026-05-01 14:03:07"; always UTC, as in messages. */
export function clock(atMs: number, nowMs = atMs): string {
  const at = new Date(atMs);
  if (Number.isNaN(at.getTime())) return "?";
  const time = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
  return Math.floor(atMs / 86_400_000) === Math.floor(nowMs / 86_400_000) ? time : `${day(atMs)} ${time}`;
}

export function day(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, 10);
}

/** Milliseconds since 1970 of an RFC 3339 text, which may have nanoseconds; null for any other text. */
export function parseTime(text: string | null | undefined): number | null {
  if (!text) return null;
  const at = Date.parse(text.replace(/(\.\d{3})\d+/, "$1"));
  return Number.isNaN(at) ? null : at;
}

export function rfc3339(atMs: number): string {
  return new Date(atMs).toISOString();
}
