// The form that asks who one is.

import { messageOf, send } from "../lib/api.js";
import { field, input } from "../lib/dialogs.js";
import { fill, h } from "../lib/dom.js";
import { themeSwitch } from "../lib/theme.js";

/** `why`: what ended the session, or null. `entered(session)` when it is done. */
export function logInForm(session, why, entered) {
  const onlyPassword = session.mechanism === "password";
  const user = input("user", { autocomplete: "username", autocapitalize: "off", required: true });
  const password = input("password", { type: "password", autocomplete: "current-password", required: true });
  const problem = h("p", { class: "form-problem", role: "alert", hidden: why === null }, why ?? "");
  const submit = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h(
    "form",
    { class: "stack", on: { submit: (event) => void submitted(event) } },
    onlyPassword ? null : field("User", user),
    field("Password", password),
    problem,
    submit,
  );
  setTimeout(() => (onlyPassword ? password : user).focus());

  async function submitted(event) {
    event.preventDefault();
    submit.disabled = true;
    problem.hidden = true;
    try {
      entered(await send("POST", "/login", { user: onlyPassword ? null : user.value, password: password.value }));
    } catch (error) {
      fill(problem, messageOf(error));
      problem.hidden = false;
      submit.disabled = false;
      password.select();
    }
  }

  return h(
    "main",
    { class: "log-in" },
    h(
      "div",
      { class: "log-in-box" },
      h("div", { class: "log-in-head" }, h("img", { src: "/static/icon.svg", alt: "", width: 36, height: 36 }), h("div", {}, h("h1", {}, "Headrace console"), h("p", { class: "data" }, session.cluster?.name ?? ""))),
      h(
        "p",
        { class: "note" },
        onlyPassword ? "This console asks for its own password." : `Log in as a user of the cluster${session.mechanism ? ` (${session.mechanism})` : ""}. You see and do what that user may.`,
      ),
      form,
      h("div", { class: "log-in-foot" }, themeSwitch()),
    ),
  );
}
