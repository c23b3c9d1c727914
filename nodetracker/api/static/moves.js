// Moves of workloads: open ones, or all.
import { Ago } from "./ago.js";
import { Choice } from "./choice.js";
import { List } from "./list.js";
import { NodeLink } from "./node_link.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";

const OPEN = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

const COLUMNS = [
  {
    id: "status",
    title: "Status",
    value: ({ status }) => status,
    cell: ({ status }) =>
      status === "error" ? html`<span class="bad"><span aria-hidden="true">▲</span> error</span>` : status,
  },
  { id: "type", title: "Type", value: ({ migration_type }) => migration_type },
  { id: "workload", title: "Workload", isHead: true, value: ({ workload_uuid }) => workload_uuid },
  ...[["source", "From"], ["dest", "To"]].map(([side, title]) => ({
    id: side,
    title,
    value: (move) => move[`${side}_node`],
    cell: (move) => html`<${NodeLink} host=${move[`${side}_host`]} nodename=${move[`${side}_node`]} />`,
  })),
  { id: "created", title: "Started", value: ({ created_at }) => created_at,
    cell: ({ created_at }) => html`<${Ago} at=${created_at} />` },
];

// Render the view.
export function Moves() {
  const isAll = useLocation().query.all === "true";
  const statuses = new URLSearchParams(OPEN.map((status) => ["status", status]));
  return html`<div class="filters">
      <${Choice} name="all" title="Show" all="open" values=${[["true", "ended, too"]]} />
    </div>
    <${List} path=${`/v1/migrations${isAll ? "" : `?${statuses}`}`} noun="migrations" columns=${COLUMNS}
      empty="No workload is moved." />`;
}
