// The turns above a stage: where the cells begin, and where a button leads.

const MERGED = 120; // turns above which neighbours of one topic are one cell

/** The first turn of each cell. @param {number[]} current the topic of each turn
 * @param {boolean} named whether topics have names, for which neighbours make room */
export function cellStarts(current, named = false) {
  const merged = named || current.length > MERGED;
  return current.flatMap((hue, turn) => (merged && turn && current[turn - 1] === hue ? [] : [turn]));
}

/** @param {string} name of a button @param {number} turn @param {{ changes: number[], turns: number }} dialog */
export function leadsTo(name, turn, { changes, turns }) {
  return /** @type {{ [name: string]: number }} */ ({
    first: 0,
    back: turn - 1,
    next: turn + 1,
    last: turns - 1,
    before: changes.findLast((change) => change < turn) ?? 0,
    ahead: changes.find((change) => change > turn) ?? turns - 1,
  })[name];
}
