// Where the river has its turns and entries.

/** @typedef {ReturnType<typeof riverScale>} Scale */

const FOOT = 16; // below it, for the numbers of turns
const APART = 24; // from one number to the next, at least

/** @param {number} turns @param {number} places entries of the highest column
 * @param {number} width @param {number} height */
export function riverScale(turns, places, width, height) {
  const step = Math.max(width, 1) / turns; // a canvas may have no room yet
  const bottom = height - FOOT;
  return { turns, step, bottom, slot: bottom / places, every: Math.ceil(APART / step) };
}

/** The box of neighbours in a turn. @param {Scale} scale @param {Neighbours} run
 * @returns {[x: number, y: number, width: number, height: number]} */
export function riverBox({ step, bottom, slot }, { turn, low, high }) {
  const gap = step > 6 ? 1 : 0;
  const snap = step < 3 ? Math.floor : (/** @type {number} */ x) => x; // or narrow columns show seams
  const left = snap(turn * step) + gap;
  return [left, bottom - high * slot, Math.max(snap((turn + 1) * step) - gap - left, 1), (high - low) * slot];
}

/** The part of a box that shows the run, or beside it the previous run.
 * @param {[x: number, y: number, width: number, height: number]} box @param {boolean} before
 * @returns {[x: number, y: number, width: number, height: number]} */
export function riverShare([x, y, width, height], before) {
  const narrow = Math.max(width * 0.25, 1);
  return before ? [x + width - narrow, y, narrow, height] : [x, y, width - narrow - Math.min(2, width / 8), height];
}

const LINE = 13; // height of a name

/** Where the names of topics stand: across neighbouring turns that have room for them.
 * @param {Scale} scale @param {Neighbours[]} runs @param {(hue: number) => number} widthOf a topic's name */
export function riverNames(scale, runs, widthOf) {
  const names = /** @type {{ hue: number, turn: number, left: number, right: number, top: number, bottom: number }[]} */ ([]);
  for (const run of runs) {
    const { hue, turn } = run;
    const [left, y, width, height] = riverBox(scale, run);
    const box = { hue, turn, left, right: left + width, top: y, bottom: y + height };
    const joins = names.find((name) => name.hue === hue && name.turn === turn - 1
      && Math.min(name.bottom, box.bottom) - Math.max(name.top, box.top) >= LINE);
    if (!joins) names.push(box);
    else Object.assign(joins, { turn, right: box.right, top: Math.max(joins.top, box.top), bottom: Math.min(joins.bottom, box.bottom) });
  }
  return names.filter(({ hue, left, right, top, bottom }) => bottom - top >= LINE && widthOf(hue) <= right - left);
}

/** The middle of an entry. @param {Scale} scale @param {number} turn @param {number} place
 * @returns {[x: number, y: number]} */
export const riverPoint = ({ step, bottom, slot }, turn, place) => [(turn + 0.5) * step, bottom - (place + 0.5) * slot];

/** The turn and the slot by age at a point. @param {Scale} scale @param {number} x @param {number} y */
export function riverAt({ turns, step, bottom, slot }, x, y) {
  return { turn: Math.min(Math.max(Math.floor(x / step), 0), turns - 1), place: Math.floor((bottom - y) / slot) };
}
