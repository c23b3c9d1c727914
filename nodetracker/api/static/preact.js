// Preact and htm under one name, and the hook that modules share.
import { useEffect, useReducer } from "./vendor/standalone.module.js";

export * from "./vendor/standalone.module.js";

// Render again when the functions of a set are called.
export function useUpdates(listeners) {
  const [, update] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    listeners.add(update);
    return () => listeners.delete(update);
  }, [listeners]);
}
