// JSON for reading, without changing it: numbers stay as they were written (64 bits do not fit into a
// number of JavaScript's), and a document that nests very deep costs no stack.

const TOKEN = /\s+|"(?:[^"\\\u0000-\u001f]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]/y;
const DEEPEST_INDENT = 40;

/** The tokens without white space; null where the text is no JSON by its tokens, or too long. */
function tokens(text, most) {
  const found = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const match = TOKEN.exec(text);
    if (match === null || found.length > most) return null;
    if (!/^\s/.test(match[0])) found.push(match[0]);
  }
  return found;
}

/** The text with a line for each value; null where it is no object or list of JSON. */
export function indented(text, most = 20_000) {
  if (!/^\s*[{[]/.test(text)) return null;
  const found = tokens(text, most);
  if (found === null || !isBalanced(found)) return null;
  const out = [];
  let depth = 0;
  const line = () => out.push(`\n${"  ".repeat(Math.min(depth, DEEPEST_INDENT))}`);
  found.forEach((token, index) => {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (found[index - 1] !== "{" && found[index - 1] !== "[") line();
      out.push(token);
      return;
    }
    if (found[index - 1] === "{" || found[index - 1] === "[" || found[index - 1] === ",") line();
    if (token === "{" || token === "[") depth += 1;
    out.push(token === ":" ? ": " : token);
  });
  return out.join("");
}

function isBalanced(found) {
  const open = [];
  for (const token of found) {
    if (token === "{" || token === "[") open.push(token);
    else if (token === "}" && open.pop() !== "{") return false;
    else if (token === "]" && open.pop() !== "[") return false;
  }
  return open.length === 0;
}

/** Of an object: a map from the names of its members to the text of their values; else null. */
export function members(text, most = 20_000) {
  if (!/^\s*\{/.test(text)) return null;
  const found = tokens(text, most);
  if (found === null || !isBalanced(found)) return null;
  const result = new Map();
  let at = 1;
  while (at < found.length - 1) {
    const name = found[at];
    if (name[0] !== '"' || found[at + 1] !== ":") return null;
    const end = endOfValue(found, at + 2);
    if (end === at + 2) return null;
    result.set(JSON.parse(name), shownValue(found.slice(at + 2, end)));
    if (end < found.length - 1 && found[end] !== ",") return null;
    at = end + 1;
  }
  return result;
}

function endOfValue(found, start) {
  let depth = 0;
  let at = start;
  while (at < found.length) {
    const token = found[at];
    if (depth === 0 && (token === "," || token === "}" || token === "]" || token === ":")) return at;
    if (token === "{" || token === "[") depth += 1;
    if (token === "}" || token === "]") depth -= 1;
    at += 1;
    if (depth === 0) return at;
  }
  return at;
}

function shownValue(part) {
  if (part.length === 1 && part[0][0] === '"') {
    try {
      return JSON.parse(part[0]);
    } catch {
      return part[0];
    }
  }
  return part.join("").replaceAll(",", ", ");
}
