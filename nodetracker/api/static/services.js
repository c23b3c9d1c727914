// Services of all binaries: state, heartbeat, clock and version.
import { Ago } from "./ago.js";
import { List } from "./list.js";
import { html } from "./preact.js";
import { State } from "./state.js";

const COLUMNS = [
  {
    id: "state",
    title: "State",
    value: ({ state, status }) => state + status,
    cell: (service) => html`<${State} of=${service} />`,
  },
  { id: "binary", title: "Binary", isHead: true, value: ({ binary }) => binary },
  { id: "host", title: "Host", value: ({ host }) => host, cell: ({ host }) => html`<bdi>${host}</bdi>` },
  {
    id: "seen",
    title: "Heartbeat",
    value: ({ last_seen_up }) => last_seen_up,
    cell: ({ last_seen_up }) => html`<${Ago} at=${last_seen_up} />`,
  },
  {
    id: "skew",
    title: "Clock skew",
    isNumeric: true,
    value: ({ clock_skew_seconds }) => Math.abs(clock_skew_seconds ?? 0),
    cell: ({ clock_skew_seconds: skew }) => (skew === null ? "unknown" : `${skew.toFixed(1)} s`),
  },
  { id: "version", title: "Version", value: ({ version }) => version },
  {
    id: "reason",
    title: "Why disabled",
    value: ({ disabled_reason }) => disabled_reason ?? "",
    cell: ({ disabled_reason }) => html`<bdi>${disabled_reason}</bdi>`,
  },
];

// Render the view.
export const Services = () =>
  html`<${List} path="/v1/services" noun="services" columns=${COLUMNS} sort="host" empty="No service." />`;
