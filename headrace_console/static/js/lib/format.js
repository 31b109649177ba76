// Numbers, sizes and times as people read them. Nothing here touches the page.

const GROUPS = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

/** A count: `12,345`. What is not known is a dash. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return /^-?\d+$/.test(value) ? GROUPS.format(BigInt(value)) : value;
  return Number.isFinite(value) ? GROUPS.format(value) : "–";
}

/** Three digits that say something: `0.42`, `8.3`, `120`, `1.2 k`. */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  const number = Number(value);
  const size = Math.abs(number);
  if (size >= 999_500_000) return `${trimmed(number / 1e9)} G`;
  if (size >= 999_500) return `${trimmed(number / 1e6)} M`;
  if (size >= 1000) return `${trimmed(number / 1e3)} k`;
  return trimmed(number);
}

function trimmed(number) {
  const size = Math.abs(number);
  if (size === 0) return "0";
  if (size < 0.01) return number < 0 ? "> -0.01" : "< 0.01";
  if (size < 1) return number.toFixed(2);
  return size < 10 ? number.toFixed(1).replace(/\.0$/, "") : number.toFixed(0);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes in powers of 1,024. */
export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(Number(value))) return "–";
  let size = Number(value);
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(size) : trimmed(size)} ${UNITS[unit]}`;
}

/** How long: `340 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 days 4 h`. */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(Number(ms))) return "–";
  const value = Math.max(0, Number(ms));
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 9950) return `${trimmed(value / 1000)} s`;
  const seconds = Math.round(value / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  const days = Math.floor(hours / 24);
  return two(days, days === 1 ? "day" : "days", hours % 24, "h");
}

function two(large, largeUnit, small, smallUnit) {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** `a moment ago`, `12 s ago`, `in 3 min`. */
export function ago(ms, now = Date.now()) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const past = now - ms;
  if (Math.abs(past) < 1500) return "just now";
  const whole = Math.round(Math.abs(past) / 1000) * 1000;
  return past < 0 ? `in ${duration(whole)}` : `${duration(whole).replace(/ [\d.]+ (s|min|h)$/, "")} ago`;
}

/** Local time with milliseconds: `2026-11-26 19:04:12.034`. */
export function moment(ms) {
  const date = dateOf(ms);
  return date === null ? "–" : `${day(date)} ${clockOf(date)}.${pad(date.getMilliseconds(), 3)}`;
}

/** `19:04:12`, with the day where it is not today. */
export function clock(ms, now = Date.now()) {
  const date = dateOf(ms);
  if (date === null) return "–";
  return day(date) === day(new Date(now)) ? clockOf(date) : `${day(date)} ${clockOf(date)}`;
}

export function iso(ms) {
  return dateOf(ms)?.toISOString() ?? "";
}

function dateOf(ms) {
  if (ms === null || ms === undefined || Number(ms) < 0) return null;
  const date = new Date(Number(ms));
  return Number.isNaN(date.getTime()) ? null : date;
}

function day(date) {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1, 2)}-${pad(date.getDate(), 2)}`;
}

function clockOf(date) {
  return `${pad(date.getHours(), 2)}:${pad(date.getMinutes(), 2)}:${pad(date.getSeconds(), 2)}`;
}

function pad(number, digits) {
  return String(number).padStart(digits, "0");
}

/** `1 partition`, `3 partitions`. */
export function many(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${Number(number) === 1 ? noun : plural}`;
}

/** A part of a whole: `42 %`. */
export function percent(part, whole) {
  if (!Number.isFinite(part) || !Number.isFinite(whole) || whole <= 0) return "–";
  const value = (part / whole) * 100;
  return `${value > 0 && value < 1 ? "< 1" : Math.round(value)} %`;
}

const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u0080-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Text of others with signs in the place of characters that are not seen, or that turn the order of
 * what follows: `⟨0000⟩`, `⟨202E⟩`. */
export function visible(text) {
  return String(text).replace(UNSEEN, (sign) => {
    const code = sign.codePointAt(0);
    return `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}
