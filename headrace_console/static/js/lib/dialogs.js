// Dialogs: the browser's own, which keep the focus inside and close on Escape.

import { h, fill, newId } from "./dom.js";
import { BadInput, messageOf } from "./api.js";

/** Shows `content` under `title`. Gives `{element, close()}`; `onClose` runs however it is closed. */
export function openDialog(title, content, { onClose = null, wide = false } = {}) {
  const titleId = newId("dialog-title");
  const element = h(
    "dialog",
    { "aria-labelledby": titleId, class: wide ? "wide" : null },
    h(
      "div",
      { class: "dialog-head" },
      h("h2", { id: titleId }, title),
      h("button", { type: "button", class: "quiet", "aria-label": "Close", on: { click: () => element.close() } }, "✕"),
    ),
    content,
  );
  element.addEventListener("close", () => {
    element.remove();
    onClose?.();
  });
  document.body.append(element);
  element.showModal();
  return { element, close: () => element.close() };
}

/** Closes what is open: the screen behind it has gone. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/**
 * A form in a dialog. `fields`: nodes. `send()` does the work and gives what is said when it is done
 * (or null); what it throws is shown in the dialog, which stays open. `typed`: a name that must be
 * typed before the button can be pressed.
 */
export function formDialog({ title, intro = null, fields = [], action, danger = false, typed = null, send, done, wide = false }) {
  const problem = h("p", { class: "form-problem", role: "alert", hidden: true });
  const submit = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: typed !== null }, action);
  const typedField = typed === null ? null : nameToType(typed, (isRight) => (submit.disabled = !isRight));
  const form = h(
    "form",
    { class: "stack", novalidate: true, on: { submit: (event) => void submitted(event) } },
    intro === null ? null : h("div", { class: "form-intro" }, intro),
    fields,
    typedField,
    problem,
    h(
      "div",
      { class: "form-actions" },
      h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"),
      submit,
    ),
  );
  const dialog = openDialog(title, form, { wide });
  form.querySelector("input, textarea, select")?.focus();

  async function submitted(event) {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    problem.hidden = true;
    try {
      const said = await send();
      dialog.close();
      done?.(said);
    } catch (error) {
      fill(problem, messageOf(error));
      problem.hidden = false;
      submit.disabled = false;
    }
  }
  return dialog;
}

function nameToType(name, onChange) {
  const id = newId("typed");
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, "Type ", h("code", {}, name), " to confirm"),
    h("input", {
      id,
      type: "text",
      name: "typed",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      on: { input: (event) => onChange(event.target.value === name) },
    }),
  );
}

/** A label with its control; `hint` is read with it. */
export function field(label, control, hint = null) {
  control.id ||= newId("field");
  const hintId = hint === null ? null : newId("hint");
  if (hintId !== null) control.setAttribute("aria-describedby", hintId);
  return h(
    "div",
    { class: "field" },
    h("label", { for: control.id }, label),
    control,
    hint === null ? null : h("p", { class: "hint", id: hintId }, hint),
  );
}

/** `choices`: `[value, label]`. */
export function select(name, choices, chosen, onChange = null) {
  return h(
    "select",
    { name, on: onChange === null ? {} : { change: (event) => onChange(event.target.value) } },
    choices.map(([value, label]) => h("option", { value, selected: String(value) === String(chosen) }, label)),
  );
}

export function input(name, { value = "", type = "text", ...rest } = {}) {
  return h("input", { name, type, value, autocomplete: "off", spellcheck: "false", ...rest });
}

/** The whole number in a field; null where it is empty and may be. `what`: its name in a sentence. */
export function whole(control, what, { least = 1, needed = false } = {}) {
  const text = control.value.trim();
  if (text === "" && !needed) return null;
  if (!/^\d+$/.test(text) || Number(text) < least) throw new BadInput(`${what} is a whole number of at least ${least}.`);
  return Number(text);
}
