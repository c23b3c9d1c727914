// Warnings that are not resolved, or all.
import { Ago } from "./ago.js";
import { Choice } from "./choice.js";
import { number } from "./format.js";
import { List } from "./list.js";
import { NodeLink } from "./node_link.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";

const COLUMNS = [
  {
    id: "kind",
    title: "Kind",
    isHead: true,
    value: ({ kind }) => kind.replaceAll("_", " "),
  },
  { id: "host", title: "Host", value: ({ host }) => host, cell: ({ host }) => html`<bdi>${host}</bdi>` },
  {
    id: "node",
    title: "Node",
    value: ({ nodename }) => nodename,
    cell: ({ host, nodename }) =>
      nodename ? html`<${NodeLink} host=${host} nodename=${nodename} />` : "whole host",
  },
  {
    id: "message",
    title: "Message",
    value: ({ message }) => message,
    cell: ({ message }) => html`<bdi>${message}</bdi>`,
  },
  { id: "first", title: "Since", value: ({ first_seen }) => first_seen,
    cell: ({ first_seen }) => html`<${Ago} at=${first_seen} />` },
  {
    id: "last",
    title: "Last seen",
    value: ({ last_seen }) => last_seen,
    cell: ({ last_seen, resolved_at }) =>
      resolved_at ? html`resolved <${Ago} at=${resolved_at} />` : html`<${Ago} at=${last_seen} />`,
  },
  { id: "count", title: "Times", isNumeric: true, value: ({ count }) => count,
    cell: ({ count }) => number(count) },
];

// Render the view.
export function Warnings() {
  const isAll = useLocation().query.all === "true";
  return html`<div class="filters">
      <${Choice} name="all" title="Show" all="unresolved" values=${[["true", "resolved, too"]]} />
    </div>
    <${List} path=${`/v1/warnings${isAll ? "?all=true" : ""}`} noun="warnings" columns=${COLUMNS}
      empty="No warning." />`;
}
