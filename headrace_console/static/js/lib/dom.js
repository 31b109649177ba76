// Elements are made here and nowhere else. Data only ever becomes text nodes and attributes, so that
// nothing that a message, a header or a name holds can become markup; and what is not seen, or turns
// the order of text, is made visible.

import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element. `attributes`: `class`, `on: {event: handler}`, properties of forms, and attributes;
 * those that are null or false are left out. Children: nodes, texts, numbers, lists; null is none. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "indeterminate"]);
const REFUSED = /^(on|style$|srcdoc$)/i;

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (PROPERTIES.has(name)) {
      element[name] = value;
    } else if (REFUSED.test(name)) {
      throw new Error(`the attribute ${name} is not set here`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : visible(child));
  }
}

/** Puts these children in the place of all that the element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets the text only where it differs: what a reader has selected stays selected. */
export function setText(element, text) {
  const wanted = visible(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

let lastId = 0;

/** An id for `aria-labelledby` and its like. */
export function newId(stem) {
  lastId += 1;
  return `${stem}-${lastId}`;
}

/** For `class`: the names whose condition holds. */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
