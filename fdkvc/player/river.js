// The river: the kept entries of every turn by age and topic, and the path of one through them.

import { one } from './dom.js';
import { riverAt, riverBox, riverNames, riverPoint, riverScale, riverShare } from './layout/river.js';
import { NOWHERE, disc, fitted, hatch, line, rounded, theme, words } from './marks.js';

export class River {
  /** @param {HTMLElement} box @param {Lane} lane @param {number} places
   * @param {HTMLElement} name has the hue of its frame and of an entry's path
   * @param {Lane} [before] the previous run, a narrow column beside each */
  constructor(box, lane, places, name = box, before = undefined) {
    this.lane = lane;
    this.before = before;
    this.name = name;
    this.hue = theme.ink;
    this.base = one(box, '.base');
    this.over = one(box, '.over');
    this.places = Math.max(places, 1);
    this.surface = NOWHERE;
    this.scale = riverScale(1, 1, 1, 1);
    this.traced = { token: -1, path: /** @type {Point[]} */ ([]), gone: /** @type {number | null} */ (null) };
  }

  // Draws what stays the same in every turn.
  layOut() {
    this.traced.token = -1;
    const { pen, width, height } = fitted(this.base);
    const { dialog } = this.lane;
    this.hue = getComputedStyle(this.name).color;
    this.surface = fitted(this.over);
    this.scale = riverScale(dialog.turns, this.places, width, height);
    const { step, every } = this.scale;
    pen.clearRect(0, 0, width, height);
    const [runs, past] = [this.lane.river(), this.before?.river() ?? []];
    for (const run of [...runs, ...past]) {
      const { fill, ink, hatched } = dialog.paint(run.hue);
      const [x, y, wide, high] = past.length ? riverShare(riverBox(this.scale, run), past.includes(run)) : riverBox(this.scale, run);
      pen.fillStyle = fill;
      pen.fillRect(x, y + 0.5, wide, Math.max(high - 1, 0.5));
      if (hatched) hatch(pen, x, y, wide, high);
      if (high >= 13 && wide >= 10 && !dialog.titles.length) {
        words(pen, dialog.letter(run.hue), x + wide / 2, y + high / 2 + 4, { bold: true, align: 'center', fill: ink });
      }
    }
    pen.font = `600 11px ${theme.font}`;
    const named = dialog.titles.length ? runs : [];
    for (const { hue, left, right, top, bottom } of riverNames(this.scale, named, (hue) => pen.measureText(dialog.label(hue)).width + 6)) {
      words(pen, dialog.label(hue), (left + right) / 2, (top + bottom) / 2 + 4, { bold: true, align: 'center', fill: dialog.paint(hue).ink });
    }
    for (let turn = 0; turn < dialog.turns; turn += every) {
      words(pen, turn, (turn + 0.5) * step, height - 3, { align: 'center' });
    }
  }

  /** @param {number} turn @param {number | null} token */
  point(turn, token) {
    const { scale: { step, bottom, every }, surface: { pen, width, height } } = this;
    pen.clearRect(0, 0, width, height);
    if (token !== null) this.#drawPath(token);
    for (const [stroke, thick] of /** @type {const} */ ([[theme.paper, 4], [this.hue, 2]])) {
      rounded(pen, [turn * step + 0.5, 1, Math.max(step - 1, 2), bottom - 1], 3, { stroke, thick });
    }
    const label = Math.min((turn + 0.5) * step, width - 7);
    pen.fillStyle = theme.paper;
    for (const beside of [0, every]) {
      const numbered = (turn - (turn % every) + beside + 0.5) * step;
      if (Math.abs(numbered - label) < 22) pen.fillRect(numbered - 11, bottom + 1, 22, 15); // they would overlap
    }
    words(pen, turn, label, height - 3, { align: 'center', bold: true, fill: this.hue });
  }

  #drawPath(/** @type {number} */ token) {
    const { scale: { step, bottom }, surface: { pen }, lane } = this;
    if (this.traced.token !== token) { // its path, which is the same in every turn
      const path = lane.path(token).map(([turn, place]) => riverPoint(this.scale, turn, place));
      this.traced = { token, path, gone: lane.left(lane.dialog.turns - 1, token) };
    }
    const { path, gone } = this.traced;
    for (const [stroke, thick] of /** @type {const} */ ([[theme.paper, 5], [this.hue, 2]])) {
      line(pen, path, { stroke, width: thick });
      for (const [x, y] of step < 6 ? [] : path) disc(pen, x, y, thick === 5 ? 4.5 : 3, stroke);
      if (gone === null) continue;
      const [x, y, arm] = [(gone + 0.5) * step, bottom - 7, 4];
      line(pen, [[x - arm, y - arm], [x + arm, y + arm]], { stroke, width: thick });
      line(pen, [[x - arm, y + arm], [x + arm, y - arm]], { stroke, width: thick });
    }
  }

  /** The turn and the token at a point. @param {number} x @param {number} y */
  at(x, y) {
    const { turn, place } = riverAt(this.scale, x, y);
    const i = this.lane.turn(turn).kept[place];
    return { turn, token: i === undefined ? null : this.lane.token[i] };
  }
}
