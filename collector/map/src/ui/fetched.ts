// A section with fetched content about the selected object. The content stays while it is fetched again. An answer
// that arrives after another object was selected is dropped.

import { Problem } from "../model/http";
import { fill, h, type Child } from "./dom";

export class Fetched<T> {
  readonly element: HTMLElement;
  readonly #body = h("div", {});
  #run: AbortController | null = null;
  #key = "";

  constructor(
    title: string,
    private readonly ask: (key: string, signal: AbortSignal) => Promise<T>,
    private readonly render: (answer: T) => Child[],
  ) {
    this.element = h("section", { class: "section" }, h("h3", {}, title), this.#body);
  }

  /** `key`: the object to fetch; "" = none, and the section is hidden. A change of `asOf` fetches again. */
  show(key: string, asOf: number | string): void {
    this.element.hidden = key === "";
    const asked = `${asOf} ${key}`;
    if (asked === this.#key) return;
    const isOther = this.#key.slice(this.#key.indexOf(" ") + 1) !== key;
    this.#key = asked;
    this.#run?.abort();
    if (key === "") return;
    if (isOther) fill(this.#body, h("p", { class: "muted" }, "…"));
    void this.#fetch(key);
  }

  async #fetch(key: string): Promise<void> {
    const run = new AbortController();
    this.#run = run;
    let content: Child[];
    try {
      content = this.render(await this.ask(key, run.signal));
    } catch (error) {
      if (run.signal.aborted) return;
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
      const why = error instanceof Problem ? error.message : "the collector does not answer";
      content = [h("p", { class: "muted" }, `Not to be had: ${why}`)];
    }
    if (this.#run === run) fill(this.#body, ...content);
  }
}
