// The theme: light, dark, or that of the system. Colours are CSS properties (tokens.css), also for the canvas.

import type { MapTheme } from "../graph/api";
import { button } from "./dom";
import { ICONS, icon } from "./icons";

const CHOICES = ["auto", "light", "dark"] as const;
type Choice = (typeof CHOICES)[number];
const KEY = "hyperscout-theme";
const SHOWN = { auto: ICONS.auto, light: ICONS.sun, dark: ICONS.moon } as const;

/** The present colours. */
export function mapTheme(): MapTheme {
  const style = getComputedStyle(document.documentElement);
  const colour = (property: string): string => style.getPropertyValue(`--${property}`).trim();
  return {
    background: colour("bg"),
    text: colour("text"),
    muted: colour("muted"),
    domain: colour("domain"),
    domainInner: colour("domain-inner"),
    border: colour("border"),
    device: colour("device"),
    cable: colour("cable"),
    ok: colour("ok"),
    degraded: colour("degraded"),
    notReady: colour("not-ready"),
    inconsistent: colour("inconsistent"),
    stale: colour("stale"),
    unknown: colour("unknown"),
    selected: colour("selected"),
    path: colour("path"),
    placed: colour("placed"),
    font: getComputedStyle(document.body).fontFamily,
  };
}

/** A button that changes the theme. `changed` is called at once, and when the colours change. */
export function themeToggle(changed: (theme: MapTheme) => void): HTMLButtonElement {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let choice = kept();
  const toggle = button(
    () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length] ?? "auto";
      keep(choice);
      apply();
    },
    { class: "square", id: "theme" },
  );
  const apply = (): void => {
    const isDark = choice === "dark" || (choice === "auto" && dark.matches);
    document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
    const label = choice === "auto" ? `Theme: automatic (${isDark ? "dark" : "light"})` : `Theme: ${choice}`;
    toggle.setAttribute("aria-label", label);
    toggle.title = label;
    toggle.replaceChildren(icon(SHOWN[choice]));
    changed(mapTheme());
  };
  dark.addEventListener("change", apply);
  apply();
  return toggle;
}

// If the browser has no storage (as in some private windows), the choice is kept until the page is closed.
function kept(): Choice {
  try {
    const found = localStorage.getItem(KEY);
    return CHOICES.find((choice) => choice === found) ?? "auto";
  } catch {
    return "auto";
  }
}

function keep(choice: Choice): void {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    return;
  }
}
