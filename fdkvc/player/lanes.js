// Several runs over one dialog: the same turn in all, and the same entry.

import { Cells } from './cells.js';
import { make, one } from './dom.js';
import { activateOption, listenToKeys, listenToMarks, listenToRiver, nameOptions } from './entries.js';
import { lanesOf } from './long.js';
import { Lines } from './lines.js';
import { number } from './numbers.js';
import { River } from './river.js';
import { WhyInAll } from './why_lanes.js';

// One run: what it is, its river and its cache.
class Row {
  /** @param {Stage} stage @param {Lane[]} lanes @param {number} k @param {LaneHead} head */
  constructor(stage, lanes, k, head) {
    const lane = lanes[k];
    const part = (/** @type {string} */ className, /** @type {(Node | string | null)[]} */ ...children) => make('div', { className }, ...children);
    const river = make('div', {
      className: 'plot river', role: 'img',
      'aria-label': `${lane.label}: the kept entries of ${lane.dialog.turns} turns by age and topic`,
    }, make('canvas', { className: 'base' }), make('canvas', { className: 'over' }));
    this.list = make('div', {
      className: 'plot cells', role: 'listbox', tabindex: 0, 'aria-label': `Entries in ${lane.label}`,
    }, make('canvas'), part('gone-title'), make('div', { className: 'options', role: 'none' }));
    const name = make('h2', { 'data-policy': lane.hued }, lane.label);
    this.counts = part('counts');
    this.figures = make('dl', {}, ...head.figures.map(([name]) => make('div', {}, make('dt', {}, name), make('dd'))));
    const note = head.note ? part('hint', head.note) : null;
    this.box = make('section', { className: 'lane', 'aria-label': lane.label },
      part('who', name, this.counts, note, this.figures), river, part('now', this.list));
    this.box.style.setProperty('--tint', `var(--tint-${head.tint})`);
    this.head = head;
    this.lane = lane;
    this.cells = new Cells(this.list, lane, name);
    this.river = new River(river, lane, head.places, name);
    this.prefix = `lane-${k}`;
    listenToMarks(stage, this.list, this.cells.marks, 3);
    listenToRiver(stage, river, this.river);
    listenToKeys(stage, this.list, (token, key) => this.cells.beside(token, key));
  }

  layOut() {
    this.cells.layOut();
    this.river.layOut();
  }

  show(/** @type {Shown} */ shown) {
    const { lane } = this;
    const { turn } = shown;
    const { kept, gone } = lane.turn(turn);
    const paged = lane.paged(turn);
    this.cells.show(shown);
    this.counts.replaceChildren(
      make('b', {}, `${number(kept.length)} of ${number(lane.budgets[turn])}`), ' kept · ', make('b', {}, number(gone.length)), ' evicted',
      ...(paged ? [make('div', { className: 'of-pages' }, paged)] : []),
    );
    one(this.box, '.gone-title').textContent = gone.length ? 'Evicted in this turn' : 'Nothing evicted';
    this.figures.querySelectorAll('dd').forEach((figure, k) => { figure.textContent = this.head.figures[k][1][turn]; });
  }
}

/** @implements {Scene} */
export class Lanes {
  /** @param {Stage} stage @param {Packed} run */
  constructor(stage, run) {
    this.stage = stage;
    const lanes = (this.lanes = lanesOf(run));
    this.dialog = lanes[0].dialog;
    this.rows = run.lanes.map((head, k) => new Row(stage, lanes, k, head));
    this.why = new WhyInAll(lanes, () => stage.choose(null));
    const paged = lanes.some((lane) => lane.pages.some((size) => size > 1));
    const signs = [
      ['is-new', 'new in this turn'], ['is-held', 'protected'], ['is-gone', 'evicted'],
      ...(paged ? [['is-page', 'a page, evicted as a whole'], ['is-empty', 'an empty slot in it']] : []),
    ];
    const key = make('div', { className: 'key' }, ...signs.map(([className, meaning]) => make('span', {}, make('i', { className }), meaning)));
    const curves = make('div');
    this.lines = new Lines(curves, run.lanes, this.dialog.changes);
    const runs = make('div', { className: 'key' }, ...run.lanes.map(({ label, shape, tint }) => {
      const drawn = make('i', { className: 'sign' });
      drawn.innerHTML = `<svg viewBox="-1.2 -1.2 2.4 2.4"><path d="${shape}"/></svg>`;
      drawn.style.color = `var(--tint-${tint})`;
      return make('span', {}, drawn, label);
    }));
    const over = make('section', { className: 'panel lines' }, make('h2', {}, 'Over the turns ', make('small', {}, 'dotted: the topic changes')), runs, curves);
    const frame = stage.part('.frame');
    frame.style.setProperty('--lanes', lanes.length);
    frame.className = 'frame lanes';
    const rows = make('div', { className: 'rows' }, key, ...this.rows.map(({ box }) => box));
    frame.replaceChildren(make('div', { className: 'runs' }, rows, over), this.why.box);
  }

  layOut() { for (const part of [...this.rows, this.lines]) part.layOut(); }

  show(/** @type {Shown} */ shown) { for (const part of [...this.rows, this.lines]) part.show(shown); }

  /** @param {number} turn @param {number | null} token */
  point(turn, token) {
    this.why.show(turn, token, this.stage.holds(), this.stage.sentences()); // before any text on a canvas
    for (const { river } of this.rows) river.point(turn, token);
  }

  paint(/** @type {number} */ moment) {
    const { hover, state: { entry } } = this.stage;
    return this.rows.map(({ cells }) => cells.paint(moment, hover, entry)).some(Boolean);
  }

  name() {
    for (const { list, cells, prefix } of this.rows) nameOptions(this.stage, list, cells, prefix);
  }

  activate() {
    for (const { list, cells, prefix } of this.rows) {
      if (cells.grid.group > 1) nameOptions(this.stage, list, cells, prefix);
      else activateOption(this.stage, list, cells, prefix);
    }
  }
}
