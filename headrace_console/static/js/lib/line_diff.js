// What differs between two texts, line by line.

const MOST_CELLS = 4_000_000;

/**
 * The lines of both texts in their order, each `{kind, text}`: "same", "removed" (of `before`) or "added" (of
 * `after`). Null where they differ in so many lines that a comparison would take long.
 */
export function lineDiff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const left = a.slice(start, a.length - end);
  const right = b.slice(start, b.length - end);
  if ((left.length + 1) * (right.length + 1) > MOST_CELLS) return null;
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  return [...same(a.slice(0, start)), ...between(left, right), ...same(a.slice(a.length - end))];
}

/** By the longest common subsequence: `longest[i][j]` is its length from `a[i]` and `b[j]` on. */
function between(a, b) {
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ kind: "same", text: a[i] });
      i += 1;
      j += 1;
    } else if (j === b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      found.push({ kind: "removed", text: a[i] });
      i += 1;
    } else {
      found.push({ kind: "added", text: b[j] });
      j += 1;
    }
  }
  return found;
}
