// Notices above the map: missing rights, the leader's address, held changes, and that the past is shown.

import type { ProblemDocument } from "../model/types";
import { button, fill, h, type Child } from "./dom";
import { visible } from "./text";

interface Notice {
  readonly text: Child;
  readonly kind: "" | "bad" | "past";
  readonly action?: readonly [string, () => void];
}

export class Notices {
  readonly element = h("div", { class: "notices", role: "status" });
  readonly #shown = new Map<string, Notice>();

  /** null removes the notice. */
  set(key: string, notice: Notice | null): void {
    if (notice) this.#shown.set(key, notice);
    else if (!this.#shown.delete(key)) return;
    const line = ([id, x]: [string, Notice]): HTMLElement =>
      h("div", { class: `notice ${x.kind}`, id: `notice-${id}` }, h("span", {}, x.text), x.action && button(x.action[1], {}, x.action[0]));
    fill(this.element, ...[...this.#shown].map(line));
  }
}

/** Describe a refusal and the next step. */
export function refusal(problem: ProblemDocument): string {
  const said = visible(problem.detail || problem.title, 400);
  switch (problem.status) {
    case 401:
      return `Sign in with a token. ${said}`;
    case 403:
      return `Access is denied: ${said}. The account needs the verb get on hypernodes.`;
    case 503:
      return problem.leader ? `This replica stands by. The leader is ${visible(problem.leader, 200)}: look there.` : said;
    default:
      return said;
  }
}
