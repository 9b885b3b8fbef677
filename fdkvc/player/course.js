// The waterfall of a score.

import { LEFT, barsOf } from './layout/course.js';
import { fitted, hatch, line, theme, words, cut } from './marks.js';
import { number } from './numbers.js';

/** @param {HTMLCanvasElement} canvas @param {Lane} lane @param {number} turn @param {Part[]} parts */
export function drawCourse(canvas, lane, turn, parts) {
  const { cutoff } = lane.turn(turn);
  const { pen, width, height } = fitted(canvas);
  pen.clearRect(0, 0, width, height);
  if (!parts.length) return;
  const { bars, middles, side, score, low, broken, bottom, y } = barsOf(parts, cutoff, width, height);
  const digits = lane.digits[turn];
  line(pen, [[LEFT - 4, bottom], [width, bottom]], { stroke: theme.faint });
  words(pen, broken ? number(low, digits) : number(low), LEFT - 8, bottom + 4, { align: 'right' });
  words(pen, number(score, digits), LEFT - 8, y(score) + 4, { align: 'right', bold: true, fill: theme.ink });
  for (const { part, x, y: top, width: wide, height: high } of bars) {
    pen.fillStyle = theme.terms[part.term % theme.terms.length];
    pen.globalAlpha = part.value < 0 ? 0.45 : 1;
    pen.fillRect(x, top, wide, high);
  }
  pen.globalAlpha = 1;
  for (const { turn: at, x } of middles) {
    const hue = lane.dialog.current[at];
    const { fill, ink, hatched } = lane.dialog.paint(hue);
    const box = /** @type {const} */ ([x - side / 2, height - 15, side, 14]);
    pen.fillStyle = fill;
    pen.fillRect(...box);
    if (hatched) hatch(pen, ...box);
    if (side >= 8) words(pen, lane.dialog.letter(hue), x, height - 4, { size: 10, bold: true, align: 'center', fill: ink });
  }
  if (broken) cut(pen, LEFT - 4, width, bottom - 5);
  if (cutoff !== null) line(pen, [[LEFT, y(cutoff)], [width, y(cutoff)]], { dash: [5, 3], width: 1.2 });
}
