// The cells of a turn: what is kept, and below it what was evicted.

import { one } from './dom.js';
import { cellAt, commonest, flowOf, gridOf, grouped, neighbour, pageOf, sizeOf } from './layout/cells.js';
import { Marks, NOWHERE, fitted, lookOf, rounded, theme } from './marks.js';
import { EVICTED } from './record.js';

export class Cells {
  /** @param {HTMLElement} box @param {Lane} lane @param {HTMLElement} name has the hue of the ring of an entry
   * @param {Lane} [before] the previous run, on the same dialog: what it decided otherwise is marked */
  constructor(box, lane, name = box, before = undefined) {
    this.lane = lane;
    this.before = before;
    this.name = name;
    this.hue = theme.ink;
    this.marks = new Marks();
    this.canvas = one(box, 'canvas');
    this.goneTitle = one(box, '.gone-title');
    this.surface = NOWHERE;
    this.grid = { side: 4, columns: 1, group: 1, below: 0 };
    this.pages = /** @type {ReturnType<typeof pageOf>[]} */ ([]);
    this.order = /** @type {number[]} */ ([]);
    /** @type {Map<number, number[]>} */
    this.members = new Map(); // of each cell that shows several, their tokens; it is named after the first
  }

  layOut() {
    const { lane } = this;
    this.surface = fitted(this.canvas);
    this.hue = getComputedStyle(this.name).color;
    this.grid = gridOf({
      width: this.surface.width,
      height: this.surface.height,
      kept: Math.max(Math.min(lane.budget, lane.token.length), lane.most.kept),
      gone: lane.most.gone,
      page: lane.pages[lane.pages.length - 1],
      paged: lane.pages.some((size) => size > 1),
    });
  }

  show(/** @type {Shown} */ { turn, glide }) {
    const { lane, lane: { dialog }, grid, grid: { group } } = this;
    const now = lane.turn(turn);
    const size = sizeOf(grid);
    const parts = [false, true].map((gone) => now.byAge.filter((i) => lane.status[i] >= EVICTED === gone));
    const laid = group > 1 ? [] : parts.map((entries) => lane.laid(turn, entries));
    this.pages = lane.pages[turn] === 1 ? [] : laid.flatMap(({ places, begins }, gone) => {
      const taken = gone ? null : new Set(places.values());
      return begins.map((first) => pageOf(grid, first, lane.pages[turn], taken));
    });
    const targets = /** @type {Map<number, Target>} */ (new Map());
    this.members.clear();
    const cells = parts.map((entries) => grouped(entries, (i) => dialog.values.get(lane.token[i]), group));
    const texts = cells.map((some) => some.map((entries) => dialog.phrase(entries.map((i) => lane.token[i]))));
    const flow = dialog.words.length && !this.pages.length ? flowOf(texts, this.surface) : null;
    this.goneTitle.style.top = `${(flow ?? grid).below - 21}px`;
    cells.forEach((all, gone) => all.forEach((entries, place) => {
      const some = entries.map((i) => lane.token[i]);
      if (some.length > 1) this.members.set(some[0], some);
      const [x, y] = cellAt(grid, group > 1 ? place : laid[gone].places.get(entries[0]) ?? 0, gone === 1);
      const at = [...flow?.boxes[gone][place] ?? [x, y, size, size], 1];
      const hue = commonest(some.map((member) => dialog.hueOf(member)));
      targets.set(some[0], { at, hue, look: this.#look(turn, entries[0]), dialog, text: flow ? texts[gone][place] : dialog.letter(hue) });
    }));
    this.order = [...targets.keys()];
    this.marks.go(targets, {
      glide: glide && group === 1,
      from: ([x, y, w, h]) => [x, y - 16, w, h, 0],
      to: ([x, y, w, h]) => [x, y + 24, w, h, 0],
    });
  }

  /** @param {number} turn @param {number} i */
  #look(turn, i) {
    const { lane, before } = this;
    const other = before && before.keeps(turn, lane.token[i]) !== lane.status[i] < EVICTED;
    return `${lookOf(lane, i)}${other ? ' other' : ''}`;
  }

  #drawPages(/** @type {Pen} */ pen) {
    const room = this.grid.side > 12 ? 1 : 0;
    for (const { frames, empty, gone } of this.pages) {
      const look = { fill: gone ? '' : theme.faint, stroke: theme.soft, dash: gone ? [3, 2] : [] };
      for (const { left, right, top, bottom } of frames) {
        rounded(pen, [left - room, top - room, right - left + 2 * room, bottom - top + 2 * room], 4, look);
      }
      for (const [x, y, size] of empty) {
        const stroke = size > 8 ? theme.soft : '';
        rounded(pen, [x + 1.5, y + 1.5, size - 3, size - 3], 2, { fill: theme.paper, stroke, dash: [1.5, 2] });
      }
    }
  }

  /** @param {number} moment @param {number | null} hover @param {number | null} chosen */
  paint(moment, hover, chosen) {
    const moves = this.marks.settle(moment);
    const { pen, width, height } = this.surface;
    pen.clearRect(0, 0, width, height);
    this.#drawPages(pen);
    this.marks.draw(pen, this.lane.dialog);
    if (hover !== null && hover !== chosen) this.marks.ring(pen, this.cellOf(hover), 1.5, this.hue);
    if (chosen !== null) this.marks.ring(pen, this.cellOf(chosen), 3, this.hue);
    return moves;
  }

  /** The cell that shows a token, named after its first one. @param {number} token */
  cellOf(token) { return [...this.members].find(([, some]) => some.includes(token))?.[0] ?? token; }

  /** Where the tile of an entry goes. @param {number} token */
  place(token) { return /** @type {Mark} */ (this.marks.shown.get(token)).at; }

  /** @param {number | null} token @param {string} key */
  beside(token, key) {
    const tiles = this.order.map((shown) => ({ token: shown, x: this.place(shown)[0], y: this.place(shown)[1] }));
    return neighbour(tiles, token, key);
  }
}
