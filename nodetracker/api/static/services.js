// Services of all binaries: state, heartbeat, clock and version.
import { ageColumn, stateColumn, textColumn } from "./columns.js";
import { List } from "./list.js";
import { html } from "./preact.js";

const COLUMNS = [
  stateColumn(({ state, status }) => state + status),
  textColumn("binary", "Binary"),
  textColumn("host", "Host"),
  ageColumn("last_seen_up", "Heartbeat"),
  {
    id: "skew",
    title: "Clock skew",
    isNumeric: true,
    value: ({ clock_skew_seconds }) => Math.abs(clock_skew_seconds ?? 0),
    cell: ({ clock_skew_seconds: skew }) => (skew === null ? "unknown" : `${skew.toFixed(1)} s`),
  },
  textColumn("version", "Version"),
  textColumn("disabled_reason", "Why disabled"),
];

// Render the view.
export const Services = () =>
  html`<${List} path="/v1/services" noun="services" columns=${COLUMNS} sort="host" empty="No service." />`;
