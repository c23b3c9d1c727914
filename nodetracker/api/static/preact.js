// Preact and htm under one name, and the hooks that modules share.
import { useEffect, useReducer, useRef } from "./vendor/standalone.module.js";

export * from "./vendor/standalone.module.js";

// Render again when the functions of a set are called.
export function useUpdates(listeners) {
  const [, update] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    listeners.add(update);
    return () => listeners.delete(update);
  }, [listeners]);
}

// Return the list of the last rendering while its values are the same.
export function useSame(values) {
  const last = useRef(values);
  const isSame = last.current.length === values.length && last.current.every((value, index) => value === values[index]);
  if (!isSame) last.current = values;
  return last.current;
}
