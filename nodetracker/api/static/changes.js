// What agents changed in the rows of nodes, newest first.
import { ageColumn, nodeColumn, textColumn } from "./columns.js";
import { Diff } from "./diff.js";
import { List } from "./list.js";
import { html } from "./preact.js";

const FIXED = { isFixed: true }; // the newest is first

const COLUMNS = [
  { ...ageColumn("at", "When"), ...FIXED },
  textColumn("host", "Host", FIXED),
  nodeColumn("node", "Node", "host", "nodename", FIXED),
  textColumn("what", "What", FIXED),
  { id: "diff", title: "Differences", cell: ({ diff }) => html`<${Diff} diff=${diff} />`, ...FIXED },
];

// Render the view.
export const Changes = () =>
  html`<${List} path="/v1/history" noun="history" columns=${COLUMNS} next="Older" empty="No change." />`;
