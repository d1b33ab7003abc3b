// The status of the collector: a held generation, and problems of the collector itself.

import { Problem } from "../model/http";
import type { App } from "./app";
import type { Notices } from "./notices";
import { visible } from "./text";

const AGAIN_MS = 15_000;
const MAX_PROBLEMS = 3;

/** As in /v1/status. */
interface Status {
  problems?: string[];
  tree_gaps?: string[];
  held?: { generation: number; reason: string };
}

function first(texts: readonly string[]): string {
  return texts.slice(0, MAX_PROBLEMS).map((x) => visible(x, 300)).join("; ");
}

export function watchStatus(app: App, notices: Notices): void {
  const look = async (): Promise<void> => {
    if (!app.picture().generation || document.hidden) return;
    try {
      const { held, problems = [], tree_gaps: gaps = [] } = await app.http.get<Status>("/v1/status?agents=false");
      const text = held && `Generation ${held.generation} is held back: ${visible(held.reason, 300)} (hyperscout approve ${held.generation})`;
      notices.set("held", text ? { kind: "", text } : null);
      const said = first(problems);
      notices.set("problems", said ? { kind: "", text: `The collector has trouble: ${said}` } : null);
      const apart = first(gaps);
      notices.set("gaps", apart ? { kind: "", text: `The domains are not one tree: ${apart}` } : null);
    } catch (error) {
      // The stream reports that the collector is unreachable. A collector without this route has no status.
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
    }
  };
  let waiting = true;
  app.onPicture(() => {
    if (waiting && app.picture().generation) void look();
    waiting &&= !app.picture().generation;
  });
  setInterval(() => void look(), AGAIN_MS);
}
