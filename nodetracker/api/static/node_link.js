// Links to nodes that are known by host and nodename.
import { Name } from "./name.js";
import { html } from "./preact.js";
import { usePoll } from "./poll.js";
import { hrefOf } from "./router.js";

const uuids = new WeakMap(); // nodes of an overview -> host and nodename -> uuid

function uuidsOf(nodes) {
  let found = uuids.get(nodes);
  if (!found) {
    found = new Map(nodes.map(({ host, nodename, uuid }) => [`${host}\n${nodename}`, uuid]));
    uuids.set(nodes, found);
  }
  return found;
}

// Render a nodename, as a link if the overview has the node.
export function NodeLink({ host, nodename }) {
  const { data } = usePoll("/v1/overview");
  const uuid = data && uuidsOf(data.nodes).get(`${host}\n${nodename}`);
  const name = html`<${Name} text=${nodename} />`;
  return uuid ? html`<a href=${hrefOf(`/nodes/${uuid}`)}>${name}</a>` : name;
}
