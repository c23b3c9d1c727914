// A list of the API as a table: its first page, and the following ones on demand.
import { Answer } from "./answer.js";
import { nextOf } from "./api.js";
import { html } from "./preact.js";
import { usePoll } from "./poll.js";
import { hrefOf, useLocation } from "./router.js";
import { Table } from "./table.js";

const LIMIT = 1000;

const keyOf = ({ uuid, id }) => uuid ?? id;

// Render a list.
// path: with its filters; noun: the key of its items; next: the title of the link to what follows.
export function List({ path, noun, next = "More", ...table }) {
  const { path: view, query } = useLocation();
  const marker = query.marker ? `&marker=${encodeURIComponent(query.marker)}` : "";
  const poll = usePoll(`${path}${path.includes("?") ? "&" : "?"}limit=${LIMIT}${marker}`);
  return html`<${Answer} poll=${poll}>${(data) => {
    const following = nextOf(data);
    const wanted = following && new URLSearchParams(following.split("?")[1]).get("marker");
    return html`<${Table} caption=${noun} rows=${data[noun]} keyOf=${keyOf} ...${table} />
      <p>${query.marker && html`<a href=${hrefOf(view, { ...query, marker: "" })}>First</a>`}
      ${" "}${wanted && html`<a href=${hrefOf(view, { ...query, marker: wanted, page: "" })}>${next}</a>`}</p>`;
  }}<//>`;
}
