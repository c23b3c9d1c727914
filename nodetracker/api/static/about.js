// Who the user is and may do what: /v1/about, read once.
import { request } from "./api.js";
import { useEffect, useState } from "./preact.js";

let reading = null;

// Return {version, user, rules, …}, or null before the answer and without one.
export function useAbout() {
  const [about, setAbout] = useState(null);
  useEffect(() => {
    let isShown = true;
    reading ??= request("/v1/about");
    reading.then(({ data }) => {
      if (!data) reading = null;
      else if (isShown) setAbout(data);
    });
    return () => {
      isShown = false;
    };
  }, []);
  return about;
}

// Return whether a rule such as nodetracker:services:update allows the user.
export const isAllowed = (about, rule) => about?.rules.includes(rule) ?? false;
