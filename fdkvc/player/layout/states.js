// A line over the turns, on an axis that is zoomed to its movement.

const DOT = 4; // room for the dot above and below

/** @param {{ low: number, high: number, turns: number, width: number, height: number }} line */
export function lineScale({ low, high, turns, width, height }) {
  const [top, foot] = [DOT, height - DOT];
  return {
    top, foot,
    x: (/** @type {number} */ turn) => ((turn + 0.5) * width) / turns,
    y: (/** @type {number} */ level) => foot - ((level - low) / (high - low)) * (foot - top),
  };
}
