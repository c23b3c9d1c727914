// Keep the objects of the last answer that did not change, so that only the others are rendered.

const keyOf = (item, index) => item?.uuid ?? item?.id ?? index;

// Return an answer equal to the fresh one, made of the old one's equal parts; fresh is changed.
export function keepIdentity(old, fresh) {
  if (old === fresh || typeof old !== "object" || typeof fresh !== "object" || !old || !fresh) {
    return fresh;
  }
  if (Array.isArray(fresh)) return Array.isArray(old) ? keepItems(old, fresh) : fresh;
  let isEqual = true;
  for (const name in fresh) {
    const kept = keepIdentity(old[name], fresh[name]);
    if (kept !== old[name]) isEqual = false;
    fresh[name] = kept;
  }
  for (const name in old) if (!(name in fresh)) isEqual = false;
  return isEqual ? old : fresh;
}

function keepItems(old, fresh) {
  let known = null; // made when an item is not where it was
  let isEqual = old.length === fresh.length;
  for (let index = 0; index < fresh.length; index++) {
    const key = keyOf(fresh[index], index);
    let before = old[index];
    if (keyOf(before, index) !== key) {
      known ??= new Map(old.map((item, place) => [keyOf(item, place), item]));
      before = known.get(key);
    }
    fresh[index] = keepIdentity(before, fresh[index]);
    if (fresh[index] !== old[index]) isEqual = false;
  }
  return isEqual ? old : fresh;
}
