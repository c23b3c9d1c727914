// Columns that many tables have.
import { Ago } from "./ago.js";
import { Name } from "./name.js";
import { NodeLink } from "./node_link.js";
import { html } from "./preact.js";
import { State } from "./state.js";

// Return a column of a text, by which it is sorted.
export const textColumn = (id, title, more) => ({
  id,
  title,
  value: (row) => row[id],
  cell: (row) => html`<${Name} text=${row[id]} />`,
  ...more,
});

// Return a column of a time of the API, shown as its age.
export const ageColumn = (id, title) => ({
  id,
  title,
  value: (row) => row[id],
  cell: (row) => html`<${Ago} at=${row[id]} />`,
});

// Return a column of nodes, with the keys of their hosts and nodenames.
export const nodeColumn = (id, title, host, nodename, more) => ({
  id,
  title,
  value: (row) => row[nodename],
  cell: (row) =>
    row[nodename] ? html`<${NodeLink} host=${row[host]} nodename=${row[nodename]} />` : "whole host",
  ...more,
});

// Return a column of nodes with their hosts.
export const placeColumn = (id, title, host, nodename) => ({
  ...nodeColumn(id, title, host, nodename),
  value: (row) => `${row[host]}\u0000${row[nodename]}`,
  cell: (row) => html`<${Name} text=${row[host]} /> / <${NodeLink} host=${row[host]} nodename=${row[nodename]} />`,
});

// Return the column of the state of nodes or services.
export const stateColumn = (value) => ({
  id: "state",
  title: "State",
  value,
  cell: (row) => html`<${State} of=${row} />`,
});
