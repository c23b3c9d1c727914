// What the views are made of, under one name.
export * from "./actions.js";
export * from "./amounts.js";
export * from "./api.js";
export * from "./preact.js";
export * from "./router.js";
export * from "./table.js";
export * from "./widgets.js";
