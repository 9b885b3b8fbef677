// The metrics over the turns: a line for a run and for the one before it, or for each of several.

import { make } from './dom.js';
import { lineScale } from './layout/lines.js';
import { NOWHERE, disc, fitted, line, rounded, sign, theme, words } from './marks.js';
import { decimal } from './numbers.js';

const MOST_SIGNS = 120; // more turns than this have no room for a sign each

/** @param {Line} line @param {number | null | undefined} value */
function written({ percent, digits }, value) {
  if (value === null || value === undefined) return '–';
  return percent ? `${decimal(100 * value, 1)} %` : decimal(value, digits);
}

export class Lines {
  /** The last run is on top; of a run that is alone or has one before it, the values are written.
   * @param {HTMLElement} box @param {Course[]} courses @param {number[]} changes */
  constructor(box, courses, changes) {
    this.box = box;
    this.courses = courses;
    this.changes = changes;
    const own = courses[courses.length - 1];
    this.rows = own.lines.map((now) => {
      const lines = courses.map((course) => course.lines.find(({ label }) => label === now.label));
      const low = Math.min(...lines.map((of) => of?.low ?? now.low)), high = Math.max(...lines.map((of) => of?.high ?? now.high));
      const canvas = make('canvas', { role: 'img', 'aria-label': `${now.label} over the turns` });
      return { now, lines, low, high, value: make('b'), other: make('small'), canvas, surface: NOWHERE };
    });
    box.replaceChildren(...this.rows.map(({ now, value, other, canvas }) => make('div', { className: 'line' },
      make('h3', {}, now.label, other, value), make('div', { className: 'plot' }, canvas))));
  }

  layOut() { for (const row of this.rows) row.surface = fitted(row.canvas); }

  show(/** @type {Shown} */ { turn }) { for (const row of this.rows) this.#draw(row, turn); }

  /** @param {Lines['rows'][number]} row @param {number} turn */
  #draw({ now, lines, low, high, value, other, surface: { pen, width, height } }, turn) {
    const { left, top, foot, step, every, x, y } = lineScale({ low, high, turns: now.values.length, width, height });
    pen.clearRect(0, 0, width, height);
    for (const tick of [low, high]) {
      words(pen, written(now, tick).replace(/\.0 %/, ' %'), left - 6, y(tick) + 4, { align: 'right' });
      line(pen, [[left - 3, y(tick)], [width, y(tick)]], { stroke: theme.faint });
    }
    for (let number = 0; number < now.values.length; number += every) words(pen, number, x(number), height - 2, { align: 'center' });
    for (const change of this.changes) line(pen, [[x(change - 0.5), top], [x(change - 0.5), foot]], { stroke: theme.soft, dash: [2, 3] });
    if (now.start !== null) {
      line(pen, [[left, y(now.start)], [width, y(now.start)]], { stroke: theme.soft });
      words(pen, `start ${written(now, now.start)}`, width - 2, y(now.start) + (y(now.start) > (top + foot) / 2 ? -4 : 12), { align: 'right' });
    }
    const style = getComputedStyle(this.box);
    lines.forEach((of, k) => {
      const { tint, shape, dash, called } = this.courses[k];
      const stroke = tint === undefined ? theme.ink : style.getPropertyValue(`--tint-${tint}`).trim();
      const points = (of?.values ?? []).flatMap((level, at) => (level === null ? [] : [/** @type {Point} */ ([x(at), y(level)])]));
      line(pen, points, { stroke, width: 1.5, dash });
      if (shape && points.length <= MOST_SIGNS) for (const point of points) sign(pen, shape, point, stroke);
      if (called) other.textContent = `${called} ${written(now, of?.values[turn])}`;
    });
    const level = now.values[turn];
    if (this.courses[0].shape) return rounded(pen, [x(turn - 0.5), top - 4, step, foot - top + 8], 3, { stroke: theme.ink, thick: 2 });
    value.textContent = written(now, level);
    if (level === null) return;
    disc(pen, x(turn), y(level), 6.5, theme.paper);
    disc(pen, x(turn), y(level), 4.5, theme.ink);
  }
}
