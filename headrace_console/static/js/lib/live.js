// Values that are asked for again and again while a screen is open. One request at a time; none while
// the page is in the background. When the server fails, what was there stays, and a line says how old
// it is.

const SLOWEST_MS = 30_000;

/**
 * Calls `load(signal)` at once and then `everyMs` after each answer, and hands each to `show`.
 * `failed(error, sinceMs)`: when it failed, and since when; `failed(null)` when it is well again.
 * Gives `{again(), stop()}`; `again` asks now.
 */
export function keepAsking(load, { everyMs, show, failed }) {
  let stopped = false;
  let timer = null;
  let under = null;
  let failingSince = null;
  let failures = 0;

  async function ask() {
    clearTimeout(timer);
    under?.abort();
    const mine = new AbortController();
    under = mine;
    try {
      const value = await load(mine.signal);
      if (stopped || under !== mine) return;
      failures = 0;
      failingSince = null;
      failed(null, null);
      show(value);
    } catch (error) {
      if (stopped || under !== mine) return;
      failures += 1;
      failingSince ??= Date.now();
      failed(error, failingSince);
      if (error.status === 401) return;
    }
    under = null;
    if (everyMs !== null) timer = setTimeout(next, Math.min(everyMs * 2 ** Math.min(failures, 4), Math.max(SLOWEST_MS, everyMs)));
  }

  function next() {
    if (stopped) return;
    if (document.hidden) timer = setTimeout(next, 1000);
    else void ask();
  }

  function seen() {
    if (!document.hidden && !stopped && under === null) void ask();
  }

  document.addEventListener("visibilitychange", seen);
  void ask();
  return {
    again: () => ask(),
    stop() {
      stopped = true;
      clearTimeout(timer);
      under?.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}
