// Warnings that are not resolved, or all.
import { Ago } from "./ago.js";
import { Choice } from "./choice.js";
import { ageColumn, nodeColumn, textColumn } from "./columns.js";
import { number } from "./format.js";
import { List } from "./list.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";

const COLUMNS = [
  textColumn("kind", "Kind", { cell: ({ kind }) => kind.replaceAll("_", " ") }),
  textColumn("host", "Host"),
  nodeColumn("node", "Node", "host", "nodename"),
  textColumn("message", "Message"),
  ageColumn("first_seen", "Since"),
  {
    ...ageColumn("last_seen", "Last seen"),
    cell: ({ last_seen, resolved_at }) =>
      html`${resolved_at && "resolved "}<${Ago} at=${resolved_at ?? last_seen} />`,
  },
  textColumn("count", "Times", { isNumeric: true, cell: ({ count }) => number(count) }),
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
