// Requests to the REST API. Errors are values: {status, title, detail, reasons}.

const TIMEOUT_MS = 30_000;

// Send a request to a path such as /v1/nodes; return {error}, or {data, tag}, with data null for an
// answer without a body. With the tag of an answer that is known, {tag} says that it is still true.
export async function request(path, { method = "GET", body, tag } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (tag) headers["If-None-Match"] = tag;
  let response;
  try {
    response = await fetch(`..${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    const text = await response.text(); // of 304 too, or the browser reports that it failed
    if (response.status === 304) return { tag };
    if (response.ok) {
      return { data: text ? JSON.parse(text) : null, tag: response.headers.get("ETag") };
    }
    return { error: explain(response.status, text) };
  } catch (error) {
    const detail = error.name === "TimeoutError" ? "The server does not answer." : error.message;
    return { error: { status: 0, title: "No answer", detail, reasons: [] } };
  }
}

function explain(status, text) {
  const known = { status, title: `HTTP ${status}`, detail: "", reasons: [] };
  try {
    const { title, detail, reasons = [] } = JSON.parse(text).errors[0];
    return { ...known, title, detail, reasons };
  } catch {
    return known; // a proxy's own page
  }
}

// Return the path of a list's next page, null for the last one.
export function nextOf(data) {
  const link = data?.links?.find(({ rel }) => rel === "next");
  if (!link) return null;
  const { pathname, search } = new URL(link.href, location);
  return pathname.slice(pathname.lastIndexOf("/v1/")) + search;
}
