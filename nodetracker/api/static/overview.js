// The overview: health in words, totals, and the table of nodes.
import { Answer } from "./answer.js";
import { number, plural } from "./format.js";
import { countNodes, findProblems, praise, signOf } from "./health.js";
import { Nodes } from "./nodes.js";
import { usePoll } from "./poll.js";
import { html, useMemo } from "./preact.js";
import { hrefOf } from "./router.js";
import { Tiles } from "./tiles.js";
import { Counts, Totals } from "./totals.js";

function Health({ overview }) {
  const problems = useMemo(() => findProblems(overview), [overview]);
  const count = countNodes(overview);
  const disabled = overview.statuses.disabled;
  return html`<section class="health" aria-label="Health">
    ${problems.length === 0
      ? html`<p class=${count ? "good" : "quiet"}><span aria-hidden="true">${count ? signOf("good") : ""}</span> ${praise(count)}</p>`
      : html`<ul>${problems.map(
          ({ level, text, href }) => html`<li key=${href}>
            <a class=${level} href=${href}><span aria-hidden="true">${signOf(level)}</span> ${text}</a>
          </li>`,
        )}</ul>`}
    ${(problems.length > 0 || disabled > 0) && html`<p class="quiet">
      ${problems.length > 0 && plural(count, "node")}${problems.length > 0 && disabled > 0 && ", "}
      ${disabled > 0 && html`<a href=${hrefOf("/", { status: "disabled" })}>${number(disabled)} disabled</a>`}
    </p>`}
  </section>`;
}

function Fleet({ overview }) {
  return html`<${Health} overview=${overview} />
    <section aria-label="Totals">
      <${Totals} amounts=${overview.totals} />
      <${Counts} guests=${overview.guests} claims=${overview.claims} />
    </section>
    ${overview.nodes.length > 1 && html`<section aria-label="Map"><${Tiles} nodes=${overview.nodes} /></section>`}
    <${Nodes} nodes=${overview.nodes} guests=${overview.guests} isTruncated=${overview.truncated} />`;
}

// Render the view.
export function Overview() {
  const poll = usePoll("/v1/overview");
  return html`<${Answer} poll=${poll}>${(overview) => html`<${Fleet} overview=${overview} />`}<//>`;
}
