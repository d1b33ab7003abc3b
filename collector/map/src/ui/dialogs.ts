// What stands in front of the page: the question for a token, and the keys.

import { button, h } from "./dom";

const KEYS: readonly [string, string][] = [
  ["/", "Search"],
  ["1 2 3 4", "What is wrong, filters, path, placement"],
  ["N P", "Next, previous thing that is wrong"],
  ["← ↑ ↓ →", "On the map: walk to what lies next"],
  ["Shift ← ↑ ↓ →", "On the map: move the view"],
  ["+ - 0", "Nearer, farther, all of it"],
  [", .", "Change before, change after"],
  ["L", "Back to live"],
  ["T", "Theme"],
  ["Esc", "Close, let go"],
  ["?", "These keys"],
];

export function helpDialog(): HTMLDialogElement {
  const rows = KEYS.flatMap(([keys, what]) => [h("dt", {}, ...keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, what)]);
  const dialog = h("dialog", { id: "help", "aria-labelledby": "help-title" });
  dialog.append(
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "keys" }, ...rows),
    button(() => dialog.close(), { class: "primary" }, "Close"),
  );
  return dialog;
}

/** Asks for a token. It is handed on and forgotten here; the field is emptied at once. */
export function tokenDialog(given: (token: string) => void): { element: HTMLDialogElement; ask(why: string): void } {
  const input = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const why = h("p", { class: "muted" });
  const element = h("dialog", { id: "token-dialog", "aria-labelledby": "token-title" });
  const form = h(
    "form",
    {
      submit: (event: Event) => {
        event.preventDefault();
        const token = input.value.trim();
        input.value = "";
        if (!token) return;
        element.close();
        given(token);
      },
    },
    h("h2", { id: "token-title" }, "Sign in"),
    why,
    h("label", { class: "field" }, h("span", { class: "label" }, "Token"), input),
    h("p", { class: "muted" }, "It stays in this tab until you close it, and is in no address. On Kubernetes: ", h("span", { class: "mono" }, "kubectl create token ACCOUNT --audience hyperscout")),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Sign in")),
  );
  element.append(form);
  return {
    element,
    ask(text) {
      why.textContent = text;
      if (!element.open) element.showModal();
    },
  };
}
