// Answers that are asked for again when something that is shown already has changed.
import { request } from "./api.js";
import { useEffect, useState } from "./preact.js";

const RETRY_MS = 5000;

// Return {data, error} of a GET; asks again when the path or the key changes, and after errors.
export function useFollow(path, key) {
  const [answer, setAnswer] = useState({ data: null, error: null });
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const ask = async () => {
      const { data, error = null } = await request(path);
      if (isOver) return;
      setAnswer((before) => ({ data: data ?? before.data, error }));
      if (error) timer = setTimeout(ask, RETRY_MS);
    };
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [path, key]);
  return answer;
}
