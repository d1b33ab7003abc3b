// Slurm's bracket notation (slurm.conf(5), NodeName), in and out: `node[01-16,20],login`. The command line
// takes and prints the same.

const MAX_NAMES = 65_536; // names in one list: Slurm rejects more as a mistake

/** Expand a list into names; null if it is not a list (an open bracket, 16-01). */
export function expand(list: string): string[] | null {
  const found: string[] = [];
  for (const part of split(list)) {
    if (part === null) return null;
    if (!part) continue;
    const names = expandOne(part);
    if (names === null || found.length + names.length > MAX_NAMES) return null;
    found.push(...names);
  }
  return [...new Set(found)];
}

/** The parts between commas outside brackets. */
function split(list: string): (string | null)[] {
  const parts: (string | null)[] = [];
  let depth = 0;
  let part = "";
  for (const c of list) {
    if (c === "[") depth += 1;
    if (c === "]") depth -= 1;
    if (depth < 0 || depth > 1) return [null];
    if (depth === 0 && (c === "," || /\s/.test(c))) {
      parts.push(part);
      part = "";
    } else part += c;
  }
  return depth ? [null] : [...parts, part];
}

function expandOne(part: string): string[] | null {
  const open = part.indexOf("[");
  if (open < 0) return [part];
  const close = part.indexOf("]", open);
  const [before, inside] = [part.slice(0, open), part.slice(open + 1, close)];
  const rest = expandOne(part.slice(close + 1));
  if (rest === null) return null;
  const found: string[] = [];
  for (const range of inside.split(",")) {
    const match = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(range.trim());
    if (!match) return null;
    const [from, to] = [match[1] ?? "", match[2] ?? match[1] ?? ""];
    if (Number(to) < Number(from) || (Number(to) - Number(from) + 1) * rest.length > MAX_NAMES) return null;
    for (let n = Number(from); n <= Number(to); n++) {
      const digits = String(n).padStart(from.length, "0");
      for (const end of rest) found.push(before + digits + end);
    }
    if (found.length > MAX_NAMES) return null;
  }
  return found;
}

/** The shortest list for these names: only a number at the end of a name goes into brackets. */
export function hostlist(names: Iterable<string>): string {
  const numbers = new Map<string, string[]>();
  for (const name of names) {
    const isGuid = /^[0-9a-f]{16}$/.test(name);
    const tail = isGuid ? "" : (/\d{1,9}$/.exec(name)?.[0] ?? "");
    const prefix = name.slice(0, name.length - tail.length);
    const known = numbers.get(prefix);
    if (known) known.push(tail);
    else numbers.set(prefix, [tail]);
  }
  const parts: string[] = [];
  for (const prefix of [...numbers.keys()].sort()) {
    const all = [...new Set(numbers.get(prefix))].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
    if (all[0] === "") {
      parts.push(prefix);
      all.shift();
    }
    if (all.length === 1) parts.push(prefix + all[0]);
    else if (all.length) parts.push(`${prefix}[${ranges(all).join(",")}]`);
  }
  return parts.join(",");
}

function ranges(all: readonly string[]): string[] {
  const found: string[] = [];
  let first = all[0] ?? "";
  let last = first;
  const end = (): void => void found.push(first === last ? first : `${first}-${last}`);
  for (const text of all.slice(1)) {
    const sameWidth = text.length === last.length || !text.startsWith("0");
    if (Number(text) === Number(last) + 1 && sameWidth) {
      last = text;
      continue;
    }
    end();
    first = last = text;
  }
  end();
  return found;
}
