// @ts-check
// The waterfall of a score.

import { fitted, hatch, line, theme, words, zigzag } from './marks.js';
import { number } from './numbers.js';

/** @import { Lane, Part } from './record.js' */

/** Where a score came from: every part begins where the one before it ended. What it began with would
 * leave the rest no height: where it does, the axis is broken below the rest.
 * @param {HTMLCanvasElement} canvas @param {Lane} lane @param {number} turn
 * @param {Part[]} parts */
export function drawCourse(canvas, lane, turn, parts) {
  const { cutoff } = lane.turn(turn);
  const { pen, width, height } = fitted(canvas);
  pen.clearRect(0, 0, width, height);
  if (!parts.length) return;
  const turns = [...new Set(parts.map((part) => part.turn))];
  const [top, bottom, left] = [8, height - 22, 44];
  const step = (width - left) / turns.length;
  /** @type {number[]} */
  const ends = [];
  parts.reduce((sum, { value }) => (ends.push(sum + value), sum + value), 0);
  const score = ends[ends.length - 1];
  const levels = [...ends, ...(cutoff === null ? [] : [cutoff])];
  const high = Math.max(0, ...levels);
  const begun = parts.filter((part) => part.turn === parts[0].turn).length;
  const least = Math.min(...ends.slice(begun - 1), ...levels.slice(ends.length));
  const broken = ends.length > begun && least > 0.4 * high && ends.every((end) => end >= 0);
  const low = broken ? least - 0.2 * (high - least) : Math.min(0, ...levels);
  const y = (/** @type {number} */ value) => top + ((high - Math.max(value, low)) / (high - low || 1)) * (bottom - top);
  const digits = lane.digits[turn];
  line(pen, [[left - 4, bottom], [width, bottom]], { stroke: theme.faint });
  words(pen, broken ? number(low, digits) : number(low), left - 8, bottom + 4, { align: 'right' });
  words(pen, number(score, digits), left - 8, y(score) + 4, { align: 'right', bold: true, fill: theme.ink });
  let from = 0;
  turns.forEach((at, place) => {
    const own = parts.filter((part) => part.turn === at && part.value !== 0);
    const thick = (step * 0.86) / Math.max(own.length, 1);
    own.forEach((part, k) => {
      const to = from + part.value;
      pen.fillStyle = theme.terms[part.term % theme.terms.length];
      pen.globalAlpha = part.value < 0 ? 0.45 : 1;
      pen.fillRect(left + place * step + step * 0.07 + k * thick, Math.min(y(from), y(to)), Math.max(thick - 0.6, 0.8), Math.max(Math.abs(y(to) - y(from)), 1));
      from = to;
    });
    pen.globalAlpha = 1;
    const hue = lane.dialog.hue(at);
    const { fill, ink, hatched } = lane.dialog.paint(hue);
    const side = Math.min(step - 1, 15);
    const box = /** @type {const} */ ([left + (place + 0.5) * step - side / 2, height - 15, side, 14]);
    pen.fillStyle = fill;
    pen.fillRect(...box);
    if (hatched) hatch(pen, ...box);
    if (side >= 8) words(pen, lane.dialog.letter(hue), box[0] + side / 2, height - 4, { size: 10, bold: true, align: 'center', fill: ink });
  });
  if (broken) zigzag(pen, left - 4, width, bottom - 5);
  if (cutoff !== null) line(pen, [[left, y(cutoff)], [width, y(cutoff)]], { dash: [5, 3], width: 1.2 });
}
