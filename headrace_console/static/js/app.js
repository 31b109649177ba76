// Where it begins: asks who one is, shows the log-in or the frame of the page, and opens the screen that
// the address names.

import { get, messageOf, send, useSession } from "./lib/api.js";
import { closeDialogs } from "./lib/dialogs.js";
import { fill, h } from "./lib/dom.js";
import { listenToKeys, showKeys } from "./lib/keys.js";
import { noticePlace, tell, tellFailure } from "./lib/notices.js";
import { parsed } from "./lib/router.js";
import { applyTheme, themeSwitch } from "./lib/theme.js";
import { button } from "./lib/words.js";
import { openAccess } from "./screens/access.js";
import { openBroker } from "./screens/broker.js";
import { openDeadLetters } from "./screens/dead_letters.js";
import { openGroup, openGroups } from "./screens/groups.js";
import { logInForm } from "./screens/log_in.js";
import { openOverview } from "./screens/overview.js";
import { openQueries, openQuery } from "./screens/queries.js";
import { noRegistry, openSchemas } from "./screens/schemas.js";
import { openSubject } from "./screens/subject.js";
import { openTimeline } from "./screens/timeline.js";
import { openTopic } from "./screens/topic.js";
import { openTopics } from "./screens/topics.js";

const SCREENS = [
  ["o", "Overview", "#/overview"],
  ["t", "Topics", "#/topics"],
  ["s", "Schemas", "#/schemas"],
  ["r", "Groups", "#/groups"],
  ["q", "Queries", "#/queries"],
  ["l", "Timeline", "#/timeline"],
  ["a", "Access", "#/access"],
];

const app = document.getElementById("app");
let session = null;
let screen = null;
let main = null;
let links = [];
let screens = SCREENS;

async function begin() {
  applyTheme();
  try {
    entered(await get("/session"));
  } catch (error) {
    fill(app, h("main", { class: "waiting" }, h("h1", {}, "Headrace console"), h("p", {}, messageOf(error)), button("Try again", begin, { kind: "primary" })));
  }
}

function entered(told) {
  session = told;
  useSession(told.csrf, loggedOut);
  if (told.needs_log_in && !told.logged_in) showLogIn(null);
  else showFrame();
}

function loggedOut(failure) {
  closeScreen();
  session = { ...session, logged_in: false };
  showLogIn(failure.message);
}

function showLogIn(why) {
  document.title = "Log in – Headrace console";
  fill(app, logInForm(session, why, entered), noticePlace());
}

function showFrame() {
  screens = SCREENS.filter(([, , address]) => address !== "#/schemas" || session.features?.schemas);
  links = screens.map(([, title, address]) => h("a", { href: address }, title));
  main = h("main", { id: "main", tabindex: -1 });
  fill(
    app,
    h("button", { type: "button", class: "skip", on: { click: () => main.focus() } }, "Skip to the content"),
    h(
      "header",
      { class: "top" },
      h("a", { class: "brand", href: "#/overview" }, mark(), h("span", {}, "Headrace")),
      h("span", { class: "cluster data", title: "The cluster" }, session.cluster?.name ?? ""),
      session.read_only ? h("span", { class: "badge" }, "Read-only") : null,
      session.cluster?.kind === "kafka" ? h("span", { class: "badge" }, "Apache Kafka") : null,
      h("div", { class: "top-end" }, who(), themeSwitch(), h("button", { type: "button", class: "quiet", "aria-label": "Keys", title: "Keys", on: { click: () => showKeys(screens) } }, "?")),
    ),
    h("nav", { class: "screens", "aria-label": "Screens" }, links),
    main,
    noticePlace(),
  );
  openFromAddress();
}

function mark() {
  return h("img", { src: "/static/icon.svg", alt: "", width: 22, height: 22 });
}

function who() {
  if (!session.logged_in || !session.needs_log_in) return null;
  return h("span", { class: "who" }, session.user === null ? null : h("span", { class: "data" }, session.user), button("Log out", logOut, { kind: "quiet" }));
}

async function logOut() {
  try {
    const told = await send("POST", "/logout", {});
    closeScreen();
    entered(told);
    tell("You are logged out.");
  } catch (error) {
    tellFailure(error);
  }
}

function closeScreen() {
  closeDialogs();
  screen?.close?.();
  screen = null;
}

function openFromAddress() {
  if (main === null || !main.isConnected) return;
  const { parts, query } = parsed(location.hash);
  const before = screen;
  if (before?.moved?.(parts, query)) return;
  closeScreen();
  const context = { session, query, readOnly: Boolean(session.read_only) };
  screen = screenOf(parts, context);
  const top = `#/${parts[0] === undefined || parts[0] === "brokers" ? "overview" : parts[0] === "dead-letters" ? "queries" : parts[0]}`;
  for (const each of links) {
    if (each.getAttribute("href") === top) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  fill(main, screen.element);
  document.title = `${screen.title} – Headrace console`;
  scrollTo(0, 0);
  // Whoever listens to the page is told where he is; at the start the browser reads the title.
  if (before !== null) main.querySelector("h1")?.focus({ preventScroll: true });
}

function screenOf(parts, context) {
  const [first, second, ...rest] = parts;
  switch (first ?? "overview") {
    case "overview":
      return openOverview(context);
    case "brokers":
      return second === undefined ? openOverview(context) : openBroker(second, context);
    case "topics":
      return second === undefined ? openTopics(context) : openTopic(second, rest[0] ?? "messages", context);
    case "schemas":
      if (!session.features?.schemas) return noRegistry();
      return second === undefined ? openSchemas() : openSubject(second, context);
    case "groups":
      return second === undefined ? openGroups(context) : openGroup(second, context);
    case "queries":
      return second === undefined ? openQueries(context) : openQuery(second, context);
    case "dead-letters":
      return openDeadLetters(second ?? null, context);
    case "timeline":
      return openTimeline(context);
    case "access":
      return openAccess(second ?? "users", context);
    default:
      return { title: "Not found", element: h("div", {}, h("h1", { tabindex: -1 }, "This page does not exist"), h("p", {}, "The address belongs to no page of the console. ", h("a", { href: "#/overview" }, "Overview"))) };
  }
}

addEventListener("hashchange", openFromAddress);
listenToKeys(() => screens);
void begin();
