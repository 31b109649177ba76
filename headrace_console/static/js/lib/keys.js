// Keys: `g` and a letter open a screen, `/` goes to the field that finds, `?` shows them all. They can
// be turned off, for those whose assistive software sends single letters.

import { h } from "./dom.js";
import { openDialog } from "./dialogs.js";

const KEY = "headrace-keys";
const WAIT_MS = 1500;

/** `screens()` gives those that there are: `[letter, title, address]`. */
export function listenToKeys(screens) {
  let began = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || areOff()) return;
    if (document.querySelector("dialog[open]") !== null) return;
    if (event.key === "/") {
      const find = document.querySelector("input.find, input[type=search]");
      if (find === null) return;
      event.preventDefault();
      find.focus();
    } else if (event.key === "?") {
      showKeys(screens());
    } else if (event.key === "g") {
      began = Date.now();
    } else if (Date.now() - began < WAIT_MS) {
      began = 0;
      const wanted = screens().find(([letter]) => letter === event.key);
      if (wanted) location.hash = wanted[2];
    }
  });
}

function isTyping(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function areOff() {
  try {
    return localStorage.getItem(KEY) === "off";
  } catch {
    return false;
  }
}

export function showKeys(screens) {
  const lines = [["/", "Go to the search field"], ["?", "Show these keys"], ...screens.map(([letter, title]) => [`g ${letter}`, title])];
  const off = h("input", {
    type: "checkbox", id: "keys-off", checked: areOff(),
    on: {
      change() {
        try {
          localStorage.setItem(KEY, off.checked ? "off" : "on");
        } catch {
          // A browser that keeps nothing.
        }
      },
    },
  });
  openDialog(
    "Keys",
    h(
      "div",
      { class: "stack" },
      h("dl", { class: "keys" }, lines.map(([keys, what]) => h("div", {}, h("dt", {}, keys.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, what)))),
      h("p", {}, "In charts the arrow keys go from point to point. Tables are sorted by the buttons in their heads."),
      h("div", { class: "check" }, off, h("label", { for: "keys-off" }, "Turn these keys off in this browser")),
    ),
  );
}
