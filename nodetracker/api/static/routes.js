// The table of views: a path, its title, and the component that gets the path's parameters.
import { Changes } from "./changes.js";
import { Moves } from "./moves.js";
import { Overview } from "./overview.js";
import { Services } from "./services.js";
import { Warnings } from "./warnings.js";

const ROUTES = [
  { path: "/", title: "Overview", view: Overview, isInMenu: true },
  { path: "/services", title: "Services", view: Services, isInMenu: true },
  { path: "/warnings", title: "Warnings", view: Warnings, isInMenu: true },
  { path: "/moves", title: "Moves", view: Moves, isInMenu: true },
  { path: "/changes", title: "Changes", view: Changes, isInMenu: true },
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
