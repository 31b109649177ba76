// What has been done, told at the edge of the page and to screen readers.

import { h } from "./dom.js";
import { messageOf } from "./api.js";

const SHOWN_MS = 8000;
const place = h("div", { class: "notices", role: "status", "aria-live": "polite" });

export function noticePlace() {
  return place;
}

export function tell(text, tone = "good") {
  const line = h(
    "div",
    { class: `notice ${tone}` },
    h("p", {}, text),
    h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", on: { click: () => line.remove() } }, "✕"),
  );
  place.append(line);
  if (tone === "good") setTimeout(() => line.remove(), SHOWN_MS);
}

export function tellFailure(error) {
  tell(messageOf(error), "bad");
}
