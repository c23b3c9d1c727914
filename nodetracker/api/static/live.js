// The page's polite live region, of which index.html has one.

// Let screen readers say a text.
export function announce(text) {
  const region = document.getElementById("live");
  if (region.textContent !== text) region.textContent = text;
}
