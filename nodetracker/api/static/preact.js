// Preact and htm, under one name for all modules.
export {
  Component, html, render, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "./vendor/standalone.module.js";
