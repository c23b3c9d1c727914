// Moves of workloads: open ones, or all.
import { Choice } from "./choice.js";
import { ageColumn, placeColumn, textColumn } from "./columns.js";
import { List } from "./list.js";
import { html } from "./preact.js";
import { useLocation } from "./router.js";
import { Mark } from "./state.js";

const OPEN = ["accepted", "pre-migrating", "migrating", "post-migrating", "finished", "error"];

const COLUMNS = [
  textColumn("status", "Status", { cell: ({ status }) => html`<${Mark} word=${status} />` }),
  textColumn("migration_type", "Type"),
  textColumn("workload_uuid", "Workload"),
  placeColumn("source", "From", "source_host", "source_node"),
  placeColumn("dest", "To", "dest_host", "dest_node"),
  ageColumn("created_at", "Started"),
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
