// The table of views: a path, its title (and a shorter name in the menu), and the component that
// gets the path's parameters. One with a title of its own renders the heading itself.
import { Changes } from "./changes.js";
import { Fit } from "./fit.js";
import { Moves } from "./moves.js";
import { NodePage } from "./node.js";
import { Overview } from "./overview.js";
import { Search } from "./search.js";
import { Services } from "./services.js";
import { Warnings } from "./warnings.js";

const ROUTES = [
  { path: "/", title: "Overview", view: Overview, isInMenu: true },
  { path: "/services", title: "Services", view: Services, isInMenu: true },
  { path: "/warnings", title: "Warnings", view: Warnings, isInMenu: true },
  { path: "/moves", title: "Moves", view: Moves, isInMenu: true },
  { path: "/changes", title: "Changes", view: Changes, isInMenu: true },
  { path: "/search", title: "Search", view: Search, isInMenu: true },
  { path: "/fit", title: "Where would it fit?", name: "Fit", view: Fit, isInMenu: true },
  { path: "/nodes/:uuid", title: "Node", view: NodePage, hasOwnTitle: true },
];

// The views that the menu lists.
export const MENU = ROUTES.filter(({ isInMenu }) => isInMenu);

// Return {route, params} of a path, null if no view has it.
export function findRoute(path) {
  const parts = path.split("/");
  for (const route of ROUTES) {
    const names = route.path.split("/");
    const isFound =
      names.length === parts.length &&
      names.every((name, index) => name.startsWith(":") || name === parts[index]);
    if (isFound) {
      const pairs = names
        .map((name, index) => [name.slice(1), parts[index]])
        .filter((_, index) => names[index].startsWith(":"));
      return { route, params: Object.fromEntries(pairs.map(([name, part]) => [name, decode(part)])) };
    }
  }
  return null;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a hand-made address
  }
}
