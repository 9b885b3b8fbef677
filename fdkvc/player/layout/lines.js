// A line over the turns, between its axes.

const DOT = 5; // room for the dot above and below
const LEFT = 44; // room for numbers
const FOOT = 15; // below it, for the numbers of turns
const APART = 24; // from one number of a turn to the next, at least

/** @param {{ low: number, high: number, turns: number, width: number, height: number }} line */
export function lineScale({ low, high, turns, width, height }) {
  const [top, foot] = [DOT, height - FOOT - DOT];
  const step = Math.max(width - LEFT, 1) / turns; // a canvas may have no room yet
  return {
    left: LEFT, top, foot, step, every: Math.ceil(APART / step),
    x: (/** @type {number} */ turn) => LEFT + (turn + 0.5) * step,
    y: (/** @type {number} */ level) => foot - ((level - low) / (high - low || 1)) * (foot - top),
  };
}
