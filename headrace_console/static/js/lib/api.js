// Requests to the console's server. Each has a time limit, so that nothing on a page waits for ever;
// each failure becomes a sentence.

const TIMEOUT_MS = 15_000;
const MOST_BYTES = 4 << 20; // MOST_BODY_BYTES of the server
const ROOT = "/api/v1";

let csrf = null;
let onLoggedOut = () => {};

/** `code` is the server's; TIMEOUT and UNREACHABLE where it did not answer. */
export class RequestFailed extends Error {
  constructor(code, message, { status = 0, unanswered = [] } = {}) {
    super(message);
    this.code = code;
    this.status = status;
    this.unanswered = unanswered;
  }
}

/** `given` is the token of /session. `loggedOut` is called when the server no longer knows the session. */
export function useSession(given, loggedOut) {
  csrf = given;
  onLoggedOut = loggedOut;
}

/** `query`: null and empty values are left out; lists are repeated. */
export function urlOf(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") parameters.append(name, String(each));
    }
  }
  const text = parameters.toString();
  return `${ROOT}${path}${text === "" ? "" : `?${text}`}`;
}

/** A path of names as they are: `path("topics", "a b")` is `/topics/a%20b`. */
export function path(...parts) {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

export function get(where, query = {}, signal = null) {
  return request("GET", urlOf(where, query), null, signal);
}

export function send(method, where, body) {
  return request(method, urlOf(where), body, null);
}

async function request(method, url, body, signal) {
  const data = method === "GET" ? undefined : JSON.stringify(body ?? {});
  if (data !== undefined && new Blob([data]).size > MOST_BYTES) {
    // The server would cut the connection, which looks as if it were gone.
    throw new BadInput("The request is larger than the console accepts (4 MiB). Use the command `headrace produce` or a client.");
  }
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  const headers = { Accept: "application/json" };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    if (csrf !== null) headers["X-CSRF-Token"] = csrf;
  }
  try {
    const response = await fetch(url, {
      method,
      headers,
      body: data,
      signal: signal === null ? limit : AbortSignal.any([signal, limit]),
      cache: "no-store",
      redirect: "error",
    });
    const document = response.status === 204 ? null : exactJson(await response.text());
    if (response.ok) return document;
    throw failureOf(response, document);
  } catch (error) {
    throw asRequestFailed(error, limit);
  }
}

/** Whole numbers that a number of JavaScript's can't hold stay texts, where the browser tells how they were
 * written: an id or an offset must not be shown as another one. */
function exactJson(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value,
  );
}

function failureOf(response, document) {
  const told = document?.error ?? {};
  const failure = new RequestFailed(told.code ?? "UNKNOWN", told.message ?? `The server answered with status ${response.status}.`, {
    status: response.status,
    unanswered: told.unanswered ?? [],
  });
  if (response.status === 401) onLoggedOut(failure);
  return failure;
}

function asRequestFailed(error, limit) {
  if (error instanceof RequestFailed) return error;
  if (error?.name === "AbortError" && !limit.aborted) return new RequestFailed("ABORTED", "The request was cancelled.");
  if (limit.aborted) {
    return new RequestFailed("TIMEOUT", `The console's server did not answer within ${TIMEOUT_MS / 1000} s.`);
  }
  if (error instanceof SyntaxError) return new RequestFailed("NO_JSON", "The console's server sent an answer that is not JSON.");
  return new RequestFailed("UNREACHABLE", "The console's server can't be reached. Is `headrace console` still running?");
}

/** What was typed can't be sent; its message says why. */
export class BadInput extends Error {}

/** One sentence or two for people. */
export function messageOf(error) {
  return error instanceof RequestFailed || error instanceof BadInput ? error.message : `The page failed: ${error?.message ?? error}`;
}
