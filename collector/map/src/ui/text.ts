// Makes names of devices safe to show. A name may contain control characters, change the reading direction, or be
// very long. All texts of the map pass through here, so that a name does not change the text beside it. dom.ts
// prevents markup.

// Controls, format characters (directions, zero widths, tags), lone surrogates, line and paragraph separators.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const LONGEST = 300;

/** Replace invisible characters by escapes (`\u202e`), as the command line does. */
export function visible(text: string, longest = LONGEST): string {
  const shown = text.replace(UNSEEN, (c) => {
    const code = c.codePointAt(0) ?? 0;
    const hex = code.toString(16);
    return code < 0x100 ? `\\x${hex.padStart(2, "0")}` : code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\u{${hex}}`;
  });
  if (shown.length <= longest) return shown;
  // The end of a name distinguishes devices of one kind, so both the beginning and the end are kept.
  const end = Math.floor(longest / 3);
  return `${shown.slice(0, longest - end - 1)}…${shown.slice(-end)}`;
}

/** "1 node", "3 nodes". */
export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** A number with three significant digits and a unit, as the command line writes it. */
export function digits(value: number): string {
  if (!Number.isFinite(value)) return "?";
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

/** CamelCase as words: "LinksDown" -> "Links down". */
export function words(camel: string): string {
  const spaced = camel.replace(/([a-z0-9])([A-Z])/g, "$1 $2");
  return spaced.charAt(0) + spaced.slice(1).toLowerCase();
}
