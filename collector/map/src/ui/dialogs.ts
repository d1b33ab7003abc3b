// Dialogs: the request for a token, and the list of keys.

import { button, h } from "./dom";

const KEYS: readonly [string, string][] = [
  ["/", "Search"],
  ["1 2 3 4", "Problems, filters, path, placement"],
  ["N P", "Next, previous problem"],
  ["← ↑ ↓ →", "On the map: select the next object in this direction"],
  ["Shift ← ↑ ↓ →", "On the map: move the view"],
  ["+ - 0", "Zoom in, zoom out, show all"],
  [", .", "Previous change, next change"],
  ["L", "Return to the present"],
  ["T", "Theme"],
  ["Esc", "Close; clear the selection"],
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

/** Asks for a token and passes it on. The token is not kept here, and the field is cleared at once. */
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
