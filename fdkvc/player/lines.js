// The metrics of a run over the turns: a line for each, and that of the previous run.

import { make } from './dom.js';
import { lineScale } from './layout/lines.js';
import { GHOST, NOWHERE, disc, fitted, line, theme, words } from './marks.js';
import { decimal } from './numbers.js';

/** @param {Line} line @param {number | null | undefined} value */
function written({ percent, digits }, value) {
  if (value === null || value === undefined) return '–';
  return percent ? `${decimal(100 * value, 1)} %` : decimal(value, digits);
}

export class Lines {
  /** @param {HTMLElement} box @param {Line[]} lines @param {Line[]} before those of the previous run
   * @param {string} called what that is called @param {number[]} changes */
  constructor(box, lines, before, called, changes) {
    this.changes = changes;
    this.called = called;
    this.rows = lines.map((now) => {
      const past = before.find(({ label }) => label === now.label);
      const [low, high] = [Math.min(now.low, past?.low ?? now.low), Math.max(now.high, past?.high ?? now.high)];
      const canvas = make('canvas', { role: 'img', 'aria-label': `${now.label} over the turns` });
      return { now, past, low, high, value: make('b'), other: make('small'), canvas, surface: NOWHERE };
    });
    box.replaceChildren(...this.rows.map(({ now, value, other, canvas }) => make('div', { className: 'line' },
      make('h3', {}, now.label, other, value), make('div', { className: 'plot' }, canvas))));
  }

  layOut() { for (const row of this.rows) row.surface = fitted(row.canvas); }

  show(/** @type {Shown} */ { turn }) { for (const row of this.rows) this.#draw(row, turn); }

  /** @param {Lines['rows'][number]} row @param {number} turn */
  #draw({ now, past, low, high, value, other, surface: { pen, width, height } }, turn) {
    const { start, values } = now;
    const level = values[turn];
    value.textContent = written(now, level);
    other.textContent = past ? `${this.called} ${written(now, past.values[turn])}` : '';
    const { left, top, foot, every, x, y } = lineScale({ low, high, turns: values.length, width, height });
    pen.clearRect(0, 0, width, height);
    for (const tick of [low, high]) {
      words(pen, written(now, tick).replace(/\.0 %/, ' %'), left - 6, y(tick) + 4, { align: 'right' });
      line(pen, [[left - 3, y(tick)], [width, y(tick)]], { stroke: theme.faint });
    }
    for (let number = 0; number < values.length; number += every) words(pen, number, x(number), height - 2, { align: 'center' });
    for (const change of this.changes) line(pen, [[x(change - 0.5), top], [x(change - 0.5), foot]], { stroke: theme.soft, dash: [2, 3] });
    if (start !== null) {
      line(pen, [[left, y(start)], [width, y(start)]], { stroke: theme.soft });
      words(pen, `start ${written(now, start)}`, width - 2, y(start) + (y(start) > (top + foot) / 2 ? -4 : 12), { align: 'right' });
    }
    const points = (/** @type {(number | null)[]} */ levels) => levels.flatMap((each, at) => (each === null ? [] : [/** @type {Point} */ ([x(at), y(each)])]));
    if (past) line(pen, points(past.values), GHOST());
    line(pen, points(values), { width: 1.5 });
    if (level === null) return;
    disc(pen, x(turn), y(level), 6.5, theme.paper);
    disc(pen, x(turn), y(level), 4.5, theme.ink);
  }
}
