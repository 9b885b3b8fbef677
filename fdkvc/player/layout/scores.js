// Where the scores of a turn stand: columns from the best to the worst, an axis zoomed to the cutoff, lanes of terms.

import { NARROW } from './marks.js';

/** @typedef {{ zoomed: boolean, ticks: number[], breaks: number[], y: (score: number) => number }} Axis of scores */
/** @typedef {{ width: number, top: number, bottom: number, tall: number, lane: number }} Band the scores' part of the canvas, and the height of a term's lane */
/** @typedef {{ i: number, left: number, width: number }} Column of an entry */
/** @typedef {{ shielded: number[], stayed: number[], missed: number[], stale: number[] }} Groups of entries */

export const LEFT = 46; // room for numbers
const TITLE = 16; // of a lane
const AROUND = 12; // entries on either side of the cutoff that the axis is zoomed to
const BREAK = 9;
const APART = 18; // between groups
const WIDEST = 14;
const LETTERED = 7; // a narrower column has no room for a letter
const NEAR = 9.5; // the width of columns near the cutoff where not all have a letter

/** @param {number} width @param {number} height @param {number} lanes @returns {Band} */
export function bandOf(width, height, lanes) {
  const lane = Math.min(48, Math.max(36, height / 6));
  const [top, bottom] = [36, height - 12 - lanes * (lane + TITLE)];
  return { width, lane, top, bottom, tall: Math.min(15, Math.max(9, (bottom - top) / 9)) };
}

/** The foot of a term's lane. @param {Band} band @param {number} k */
export const footOf = ({ bottom, lane }, k) => bottom + 12 + (k + 1) * (lane + TITLE) - 8;

/** From left to right: protected, kept, evicted, below the threshold. If not all fit, those near the
 * cutoff are wider. `edge` is where the first evicted begins.
 * @param {Band} band @param {Groups} now */
export function columnsOf({ width }, { shielded, stayed, missed, stale }) {
  const contending = [...stayed, ...missed];
  const groups = [shielded, contending, stale].filter((group) => group.length);
  const count = groups.reduce((sum, group) => sum + group.length, 0);
  const room = Math.max(width - LEFT - APART * (groups.length - 1) - 2, 1); // a canvas may have no room yet
  const even = Math.min(WIDEST, room / Math.max(count, 1));
  let [near, wide, narrow] = [contending.length, even, even];
  if (even < LETTERED) {
    wide = NEAR;
    near = Math.min(Math.floor((0.6 * room) / wide), contending.length);
    narrow = (room - near * wide) / Math.max(count - near, 1);
  }
  const from = Math.max(0, Math.min(stayed.length - Math.ceil(near / 2), contending.length - near));
  const edge = missed.length && stayed.length ? missed[0] : null;
  const columns = /** @type {Column[]} */ ([]);
  let x = LEFT;
  const spans = groups.map((group) => {
    const start = x;
    group.forEach((i, place) => {
      const inside = group === contending && place >= from && place < from + near;
      columns.push({ i, left: x, width: inside ? wide : narrow });
      x += columns[columns.length - 1].width;
    });
    x += APART;
    return { start, end: x - APART, group };
  });
  return { columns, spans, edge: columns.find(({ i }) => i === edge)?.left ?? null };
}

/** What is drawn of a column. @param {number} width */
export const drawnWidth = (width) => (width > NARROW + 1 ? Math.round(4 * (width - 1)) / 4 : Math.max(width, 0.8));

/** Scores near the cutoff get most of the height; those far above or below are compressed beyond a
 * break, unless all fit.
 * @param {Band} band @param {{ all: number[], contending: number[], stayed: number, cutoff: number | null }} scores both from the highest to the lowest @returns {Axis} */
export function axisOf({ top, bottom, tall }, { all, contending, stayed, cutoff }) {
  const [high, low] = [all[0] ?? 1, all.at(-1) ?? 0];
  const [first, last] = [top + tall / 2 + 2, bottom - tall / 2 - 2];
  const near = contending.slice(Math.max(0, stayed - AROUND), stayed + AROUND);
  const [up, down] = [near[0] ?? high, near.at(-1) ?? low];
  const between = (/** @type {number} */ score, /** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ a, /** @type {number} */ b) => a + ((from - score) / (from - to)) * (b - a);
  if (cutoff === null || near.length < 2 || up <= down || (up - down) / (high - low) >= 0.4) {
    const y = (/** @type {number} */ score) => (high > low ? between(score, high, low, first, last) : (first + last) / 2);
    return { zoomed: false, ticks: high > low ? [high, low] : [high], breaks: [], y };
  }
  const room = 0.06 * (up - down);
  const [above, below] = [up + room, down - room];
  const band = (last - first) * 0.17;
  const [upper, lower] = [high > above ? first + band : first, low < below ? last - band : last];
  const [inner, outer] = [high > above ? upper + BREAK : first, low < below ? lower - BREAK : last];
  const y = (/** @type {number} */ score) => {
    if (score > above) return between(score, high, above, first, upper);
    if (score < below) return between(score, below, low, lower, last);
    return between(score, above, below, inner, outer);
  };
  return {
    zoomed: true, y, ticks: [...(high > above ? [high] : []), up, down, ...(low < below ? [low] : [])],
    breaks: [...(high > above ? [upper + BREAK / 2] : []), ...(low < below ? [lower - BREAK / 2] : [])],
  };
}

/** The axis of a term, from zero to its highest value or, if it has negative ones, from its lowest; `share`
 * is how much of it a value takes. @param {number[]} values */
export function spanOf(values) {
  const all = [0, ...values.filter(Number.isFinite)];
  const [low, high] = [all.reduce((one, other) => Math.min(one, other)), all.reduce((one, other) => Math.max(one, other))];
  const wide = high - low || 1;
  const share = (/** @type {number} */ value) => (Number.isFinite(value) ? value / wide : 0);
  return { low, high, foot: (0 - low) / wide, share };
}
