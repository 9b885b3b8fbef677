// The bars of a waterfall: every part of a score begins where the one before it ended.

/** @typedef {{ part: Part, x: number, y: number, width: number, height: number }} Bar */

const [TOP, FOOT] = [8, 22];
export const LEFT = 44;

/** Bars of one turn are side by side. Where the initial score would leave the others no height, the
 * axis is broken below them, and `low` is its foot.
 * @param {Part[]} parts some, in order @param {number | null} cutoff @param {number} width @param {number} height */
export function barsOf(parts, cutoff, width, height) {
  const turns = [...new Set(parts.map((part) => part.turn))];
  const step = Math.max(width - LEFT, 1) / turns.length; // a canvas may have no room yet
  const ends = /** @type {number[]} */ ([]);
  parts.reduce((sum, { value }) => (ends.push(sum + value), sum + value), 0);
  const levels = [...ends, ...(cutoff === null ? [] : [cutoff])];
  const high = Math.max(0, ...levels);
  const begun = parts.filter((part) => part.turn === parts[0].turn).length;
  const least = Math.min(...ends.slice(begun - 1), ...levels.slice(ends.length));
  const broken = ends.length > begun && least > 0.4 * high && ends.every((end) => end >= 0);
  const low = broken ? least - 0.2 * (high - least) : Math.min(0, ...levels);
  const bottom = height - FOOT;
  const y = (/** @type {number} */ value) => TOP + ((high - Math.max(value, low)) / (high - low || 1)) * (bottom - TOP);
  let from = 0;
  const bars = turns.flatMap((turn, place) => {
    const steps = parts.filter((part) => part.turn === turn && part.value !== 0);
    const thick = (step * 0.86) / Math.max(steps.length, 1);
    return steps.map((part, k) => {
      const [before, after] = [y(from), y((from += part.value))];
      return {
        part, x: LEFT + place * step + step * 0.07 + k * thick, y: Math.min(before, after),
        width: Math.max(thick - 0.6, 0.8), height: Math.max(Math.abs(after - before), 1),
      };
    });
  });
  const middles = turns.map((turn, place) => ({ turn, x: LEFT + (place + 0.5) * step }));
  return { bars, middles, side: Math.min(Math.max(step - 1, 0.8), 15), score: ends[ends.length - 1], low, broken, bottom, y };
}
