// Light, dark, or as the system has it. The choice is kept in this browser.

import { h } from "./dom.js";

const KEY = "headrace-theme";
const NAMES = { system: "System", light: "Light", dark: "Dark" };

export function chosenTheme() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept in NAMES ? kept : "system";
  } catch {
    return "system";
  }
}

export function applyTheme(theme = chosenTheme()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function themeSwitch() {
  const control = h(
    "select",
    { class: "compact", "aria-label": "Colours", on: { change: () => choose(control.value) } },
    Object.entries(NAMES).map(([value, label]) => h("option", { value, selected: value === chosenTheme() }, label)),
  );
  return control;
}

function choose(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A browser that keeps nothing: the choice holds until the page is left.
  }
  applyTheme(theme);
}
