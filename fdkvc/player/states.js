// The states of a policy: a line over the turns for each.

import { make } from './dom.js';
import { lineScale } from './layout/states.js';
import { NOWHERE, disc, fitted, line, theme } from './marks.js';
import { decimal } from './numbers.js';

export class States {
  /** @param {HTMLElement} box @param {State[]} states @param {number[]} changes */
  constructor(box, states, changes) {
    this.changes = changes;
    this.lines = states.map((state) => ({ state, value: make('b'), canvas: make('canvas'), surface: NOWHERE }));
    box.replaceChildren(...this.lines.map(({ state, value, canvas }) => make('div', { className: 'state' },
      make('h3', {}, state.label, value), make('div', { className: 'line' }, canvas))));
  }

  layOut() { for (const row of this.lines) row.surface = fitted(row.canvas); }

  show(/** @type {Shown} */ { turn }) { for (const row of this.lines) this.#draw(row, turn); }

  /** @param {States['lines'][number]} row @param {number} turn */
  #draw({ state, value, surface: { pen, width, height } }, turn) {
    const { low, high, start, values, digits } = state;
    const now = values[turn];
    value.textContent = now === null ? '–' : decimal(now, digits);
    const { top, foot, x, y } = lineScale({ low, high, turns: values.length, width, height });
    pen.clearRect(0, 0, width, height);
    for (const change of this.changes) {
      const at = x(change - 0.5);
      line(pen, [[at, top], [at, foot]], { stroke: theme.soft, dash: [2, 3] });
    }
    if (start !== null) line(pen, [[0, y(start)], [width, y(start)]], { stroke: theme.soft, dash: [5, 3] });
    const points = values.flatMap((level, at) => (level === null ? [] : [/** @type {Point} */ ([x(at), y(level)])]));
    line(pen, points, { width: 1.5 });
    if (now === null) return;
    disc(pen, x(turn), y(now), 6.5, theme.paper);
    disc(pen, x(turn), y(now), 4.5, theme.ink);
  }
}
