// Describes a change in one sentence for screen readers: new problems, and problems that are solved.

import type { Anomaly } from "../model/types";
import type { App, PictureListener } from "./app";
import { count, words } from "./text";
import { anomalyId, between } from "./things";

export function changesIn(app: App): PictureListener {
  let before: Map<string, Anomaly> | null = null;
  return (picture, change) => {
    const now = new Map(picture.anomalies.map((x) => [anomalyId(x), x]));
    const known = before;
    before = now;
    if (known === null || change === null) return; // another picture: not a change
    const came = [...now].filter(([id]) => !known.has(id)).map(([, x]) => x);
    const went = [...known].filter(([id]) => !now.has(id)).map(([, x]) => x);
    const said = [told(app, "New", came), told(app, "Over", went)].filter(Boolean).join(". ");
    if (said) app.say(said);
  };
}

function told(app: App, word: string, all: readonly Anomaly[]): string {
  const [first] = all;
  if (!first) return "";
  const more = all.length > 1 ? `, and ${count(all.length - 1, "more", "more")}` : "";
  return `${word}: ${words(first.kind)} ${between(app.picture(), first)}${more}`;
}
