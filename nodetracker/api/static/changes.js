// What agents changed in the rows of nodes, newest first.
import { Ago } from "./ago.js";
import { Diff } from "./diff.js";
import { List } from "./list.js";
import { NodeLink } from "./node_link.js";
import { html } from "./preact.js";

const COLUMNS = [
  { id: "at", title: "When", isFixed: true, cell: ({ at }) => html`<${Ago} at=${at} />` },
  { id: "host", title: "Host", isFixed: true, cell: ({ host }) => html`<bdi>${host}</bdi>` },
  { id: "node", title: "Node", isFixed: true, isHead: true,
    cell: ({ host, nodename }) => html`<${NodeLink} host=${host} nodename=${nodename} />` },
  { id: "what", title: "What", isFixed: true, cell: ({ what }) => what },
  { id: "diff", title: "Differences", isFixed: true, cell: ({ diff }) => html`<${Diff} diff=${diff} />` },
];

// Render the view.
export const Changes = () =>
  html`<${List} path="/v1/history" noun="history" columns=${COLUMNS} next="Older" empty="No change." />`;
