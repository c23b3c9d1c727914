// Search: a workload by its uuid or a part of its name, or a project: where it is and what it takes.
import { amount, number, plural } from "./format.js";
import { useFollow } from "./follow.js";
import { html } from "./preact.js";
import { setQuery, useLocation } from "./router.js";
import { Workloads } from "./workloads.js";

const UUID = /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i;

// Return what is taken, as one sentence.
function sumUp(usages) {
  const sum = (name) => usages.reduce((total, usage) => total + usage[name], 0);
  return [
    plural(sum("workloads"), "workload"),
    `${number(sum("vcpus") + sum("pcpus"))} CPUs`,
    amount("MEMORY_MB", sum("memory_mb")),
    amount("DISK_GB", sum("disk_gb")),
  ].join(", ");
}

function Found({ text }) {
  const wanted = encodeURIComponent(text);
  const named = useFollow(`/v1/workloads?name_part=${wanted}`, 0);
  const owned = useFollow(`/v1/workloads?project=${wanted}`, 0);
  const used = useFollow(`/v1/usages?project=${wanted}`, 0);
  const usages = used.data?.usages ?? [];
  return html`
    ${usages.length > 0 && html`<section aria-labelledby="project"><h2 id="project">Project <bdi>${text}</bdi></h2>
      <p>${sumUp(usages)}</p><${Workloads} workloads=${owned.data?.workloads ?? []} hasNodes empty="" /></section>`}
    ${(usages.length === 0 || named.data?.workloads.length > 0) && html`<section aria-labelledby="named">
      <h2 id="named">Names with <bdi>${text}</bdi></h2>
      <${Workloads} workloads=${named.data?.workloads ?? []} hasNodes
        empty=${named.data && used.data ? "No workload has such a name, and no project this id." : "Searching…"} /></section>`}`;
}

function Workload({ uuid }) {
  const { data, error } = useFollow(`/v1/workloads/${uuid}`, 0);
  if (!data) return html`<p class="quiet">${error ? error.detail : "Searching…"}</p>`;
  const { places, ...workload } = data;
  return html`<section aria-labelledby="found"><h2 id="found"><bdi>${data.name || uuid}</bdi></h2>
    <p class="quiet">${data.kind} <code>${uuid}</code>${data.project_id && html` of project <bdi>${data.project_id}</bdi>`}, on ${plural(places.length, "node")}</p>
    <${Workloads} workloads=${places.map((place) => ({ ...workload, ...place }))} hasNodes empty="" /></section>`;
}

// Render the view.
export function Search() {
  const { query } = useLocation();
  const text = (query.text ?? "").trim();
  const search = (event) => {
    event.preventDefault();
    setQuery({ text: new FormData(event.target).get("text"), page: "", sort: "" });
  };
  return html`<form class="filters" role="search" onSubmit=${search}>
      <label class="grow">Workload or project
        <input type="search" name="text" placeholder="UUID, part of a name, or project" key=${text} defaultValue=${text} />
      </label>
      <button class="primary">Search</button>
    </form>
    ${text && (UUID.test(text) ? html`<${Workload} key=${text} uuid=${text} />` : html`<${Found} key=${text} text=${text} />`)}`;
}
