// Addresses of screens: everything behind `#`, so that the server has one page. `#/topics/orders?tab=messages`.

/** The parts of a path, decoded, and its parameters. */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter((part) => part !== "").map(decoded);
  return { parts, query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a screen, from names as they are. */
export function addressOf(parts, query = {}) {
  const path = parts.map(encodeURIComponent).join("/");
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path}${text === "" ? "" : `?${text}`}`;
}

/** Changes the parameters of this screen without opening it anew. */
export function keepInAddress(query) {
  const { parts } = parsed(location.hash);
  history.replaceState(null, "", addressOf(parts, query));
}
