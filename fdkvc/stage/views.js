// @ts-check
// The views of a run, each on a canvas of its own.

import { make, one } from './dom.js';
import { Marks, NARROW, fitted, hatch, line, lookOf, theme, words, zigzag } from './marks.js';
import { decimal, number, signed } from './numbers.js';
import { EVICTED } from './record.js';

/**
 * @typedef {{ zoomed: boolean, ticks: number[], breaks: number[], y: (score: number) => number }} Axis of scores
 * @typedef {import('./marks.js').At} At
 * @typedef {import('./marks.js').Mark} Mark
 * @typedef {import('./marks.js').Pen} Pen
 * @typedef {import('./marks.js').Point} Point
 * @typedef {import('./marks.js').Surface} Surface
 * @typedef {import('./marks.js').Target} Target
 * @typedef {import('./record.js').Lane} Lane
 * @typedef {import('./record.js').Part} Part
 * @typedef {import('./record.js').State} State
 * @typedef {ReturnType<Lane['turn']>} Turn
 */

// ---------------------------------------------------------------------------------- the river

export class River {
  /** @param {HTMLElement} box @param {Lane} lane @param {number} places
   * @param {HTMLElement} name has the hue of its frame and of an entry's path */
  constructor(box, lane, places, name = box) {
    this.lane = lane;
    this.name = name;
    this.hue = theme.ink;
    this.base = one(box, '.base');
    this.over = one(box, '.over');
    this.places = Math.max(places, 1);
    this.surface = NOWHERE;
    this.bottom = 0;
    this.step = 1;
    this.every = 1; // turns from one number on its axis to the next
    this.traced = { token: -1, path: /** @type {Point[]} */ ([]), gone: /** @type {number | null} */ (null) };
  }

  // What no step changes.
  layOut() {
    this.traced.token = -1;
    const { pen, width, height } = fitted(this.base);
    const { dialog } = this.lane;
    this.hue = getComputedStyle(this.name).color;
    this.surface = fitted(this.over);
    this.bottom = height - 16;
    this.step = width / dialog.turns;
    const slot = this.bottom / this.places;
    const gap = this.step > 6 ? 1 : 0;
    const snap = this.step < 3 ? Math.floor : (/** @type {number} */ x) => x; // or narrow columns show seams
    pen.clearRect(0, 0, width, height);
    for (const { turn, low, high, hue } of this.lane.river()) {
      const { fill, ink, hatched } = dialog.paint(hue);
      const left = snap(turn * this.step) + gap;
      const box = /** @type {const} */ ([left, this.bottom - high * slot, Math.max(snap((turn + 1) * this.step) - gap - left, 1), (high - low) * slot]);
      pen.fillStyle = fill;
      pen.fillRect(box[0], box[1] + 0.5, box[2], Math.max(box[3] - 1, 0.5));
      if (hatched) hatch(pen, ...box);
      if (box[3] >= 13 && this.step >= 11) {
        words(pen, dialog.letter(hue), box[0] + box[2] / 2, box[1] + box[3] / 2 + 4, {
          bold: true, align: 'center', fill: ink,
        });
      }
    }
    this.every = Math.ceil(24 / this.step);
    for (let turn = 0; turn < dialog.turns; turn += this.every) {
      words(pen, turn, (turn + 0.5) * this.step, height - 3, { align: 'center' });
    }
  }

  /** Of a fork: the turns before are those of the run that it continues. @param {number} turn */
  begin(turn) {
    const { pen } = fitted(this.base);
    const x = turn * this.step;
    pen.globalAlpha = 0.6;
    pen.fillStyle = theme.paper;
    pen.fillRect(0, 0, x, this.bottom);
    pen.globalAlpha = 1;
    line(pen, [[x, 0], [x, this.bottom + 4]], { width: 2, dash: [4, 3] });
  }

  /** @param {number} turn @param {number | null} token */
  paint(turn, token) {
    const { step, bottom, surface: { pen, width, height } } = this;
    pen.clearRect(0, 0, width, height);
    if (token !== null) {
      const { path, gone } = this.#trace(token);
      for (const { stroke, thick } of [{ stroke: theme.paper, thick: 5 }, { stroke: this.hue, thick: 2 }]) {
        line(pen, path, { stroke, width: thick });
        pen.fillStyle = stroke;
        for (const [x, y] of step < 6 ? [] : path) {
          pen.beginPath();
          pen.arc(x, y, thick === 5 ? 4.5 : 3, 0, 7);
          pen.fill();
        }
        if (gone !== null) {
          const [x, y] = [(gone + 0.5) * step, bottom - 7];
          const arm = 4;
          line(pen, [[x - arm, y - arm], [x + arm, y + arm]], { stroke, width: thick });
          line(pen, [[x - arm, y + arm], [x + arm, y - arm]], { stroke, width: thick });
        }
      }
    }
    pen.beginPath();
    pen.roundRect(turn * step + 0.5, 1, Math.max(step - 1, 2), bottom - 1, 3);
    for (const [stroke, thick] of /** @type {const} */ ([[theme.paper, 4], [this.hue, 2]])) {
      pen.lineWidth = thick;
      pen.strokeStyle = stroke;
      pen.stroke();
    }
    const label = Math.min((turn + 0.5) * step, width - 7);
    pen.fillStyle = theme.paper;
    for (const beside of [0, this.every]) {
      const numbered = (turn - (turn % this.every) + beside + 0.5) * step;
      if (Math.abs(numbered - label) < 22) pen.fillRect(numbered - 11, bottom + 1, 22, 15); // they would overlap
    }
    words(pen, turn, label, height - 3, { align: 'center', bold: true, fill: this.hue });
  }

  /** Where an entry stands in each turn, and when it is evicted for good: the same in all steps.
   * @param {number} token */
  #trace(token) {
    if (this.traced.token !== token) {
      const { lane, step, bottom } = this;
      const slot = bottom / this.places;
      const path = lane.path(token).map(([at, place]) => /** @type {Point} */ ([(at + 0.5) * step, bottom - (place + 0.5) * slot]));
      this.traced = { token, path, gone: lane.left(lane.dialog.turns - 1, token) };
    }
    return this.traced;
  }

  /** The turn and the token at a point. @param {number} x @param {number} y */
  at(x, y) {
    const turn = Math.min(Math.max(Math.floor(x / this.step), 0), this.lane.dialog.turns - 1);
    const slot = Math.floor(((this.bottom - y) / this.bottom) * this.places);
    const i = this.lane.turn(turn).kept[slot];
    return { turn, token: i === undefined ? null : this.lane.token[i] };
  }
}

// ---------------------------------------------------------------------------------- the cells

/** @type {Surface} before its box is measured */
const NOWHERE = /** @type {any} */ ({});

/** @param {number[]} values */
function commonest(values) {
  if (values.length === 1) return values[0];
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const each of values) counts.set(each, (counts.get(each) ?? 0) + 1);
  return [...counts].reduce((best, each) => (each[1] > best[1] ? each : best))[0];
}

const SINGLE = 2000; // cells that may each show one entry
const EDGE = 5; // around the cells, for the ring of those at the border

/** Of a page: what frames it in each row, and its empty places, unless it has left.
 * @param {number} first @param {number} many @param {(place: number) => Point} at
 * @param {Set<number> | null} taken @param {number} size */
function page(first, many, at, taken, size) {
  /** @type {Map<number, [left: number, right: number]>} */
  const rows = new Map();
  /** @type {[x: number, y: number, size: number][]} */
  const empty = [];
  for (let place = first; place < first + many; place += 1) {
    const [x, y] = at(place);
    const [left] = rows.get(y) ?? [x];
    rows.set(y, [left, x + size]);
    if (taken && !taken.has(place)) empty.push([x, y, size]);
  }
  /** @type {{ left: number, right: number, top: number, bottom: number }[]} */
  const frames = [];
  for (const [y, [left, right]] of rows) {
    const last = frames.at(-1);
    if (last && last.left === left && last.right === right) last.bottom = y + size;
    else frames.push({ left, right, top: y, bottom: y + size });
  }
  return { frames, empty, gone: !taken };
}

export class Cells {
  /** @param {HTMLElement} box @param {Lane} lane
   * @param {HTMLElement} name has the hue of the ring of an entry */
  constructor(box, lane, name = box) {
    this.lane = lane;
    this.name = name;
    this.hue = theme.ink;
    this.marks = new Marks();
    this.canvas = one(box, 'canvas');
    this.goneTitle = one(box, '.gone-title');
    this.surface = NOWHERE;
    this.side = 4;
    this.columns = 1;
    this.below = 0;
    this.pages = /** @type {ReturnType<typeof page>[]} */ ([]);
    this.order = /** @type {number[]} */ ([]);
    this.group = 1; // entries to a cell: more where they would be too small
    /** @type {Map<number, number[]>} */
    this.members = new Map(); // of each cell that shows several, their tokens; it is named after the first
  }

  layOut() {
    this.surface = fitted(this.canvas);
    this.hue = getComputedStyle(this.name).color;
    const { width, height } = this.surface;
    const { kept, gone } = this.lane.most;
    const between = gone ? 30 : 0;
    const places = Math.max(Math.min(this.lane.budget, this.lane.token.length), kept);
    const rows = (/** @type {number} */ many, /** @type {number} */ columns) => Math.ceil(many / columns);
    const most = this.lane.pages.some((size) => size > 1) ? 1 : places;
    const fits = (/** @type {number} */ side) => {
      const columns = this.#fitting(Math.floor((width - 2 * EDGE) / side));
      const [kept, left] = [places, gone].map((many) => rows(Math.ceil(many / this.group), columns));
      return (kept + left) * side + between <= height - 2 * EDGE;
    };
    this.side = 4;
    for (this.group = 1; ; this.group *= 2) {
      let side = 42;
      while (side > (this.group > 1 ? 11 : 4) && !fits(side)) side -= 0.5; // 11: with a letter
      const many = this.group === 1 && places + gone > SINGLE;
      if ((many || !fits(side)) && this.group < most) continue;
      this.side = side;
      break;
    }
    this.columns = Math.max(1, this.#fitting(Math.floor((width - 2 * EDGE) / this.side)));
    this.below = EDGE + rows(Math.ceil(places / this.group), this.columns) * this.side + between;
    this.goneTitle.style.top = `${this.below - 21}px`;
  }

  /** So many columns or a few less, such that no page of the last turn ends within a row.
   * @param {number} columns */
  #fitting(columns) {
    const size = this.lane.pages[this.lane.pages.length - 1];
    for (let some = columns; 2 * some > columns; some -= 1) {
      if (size % some === 0 || some % size === 0) return some;
    }
    return columns;
  }

  /** @param {number} turn @param {string} order @param {boolean} glide */
  show(turn, order, glide) {
    const { lane, side, columns } = this;
    const now = lane.turn(turn);
    const sequence = order === 'score' ? now.byScore : now.byAge;
    /** @type {Map<number, Target>} */
    const targets = new Map();
    const isGone = (/** @type {number} */ i) => lane.status[i] >= EVICTED;
    const size = side - (side > 12 ? 3 : 1);
    const at = (/** @type {number} */ place, /** @type {boolean} */ gone) => /** @type {Point} */ ([
      EDGE + (place % columns) * side, Math.floor(place / columns) * side + (gone ? this.below : EDGE),
    ]);
    const parts = [false, true].map((gone) => sequence.filter((i) => isGone(i) === gone));
    const laid = this.group > 1 ? [] : parts.map((entries) => lane.laid(turn, entries));
    this.pages = lane.pages[turn] === 1 ? [] : laid.flatMap(({ places, begins }, gone) => {
      const taken = new Set(places.values());
      return begins.map((first) => page(first, lane.pages[turn], (place) => at(place, gone === 1), gone ? null : taken, size));
    });
    this.order = [];
    this.members.clear();
    for (const gone of [false, true]) {
      const entries = parts[Number(gone)];
      for (let first = 0; first < entries.length; first += this.group) {
        const i = entries[first];
        const token = lane.token[i];
        const some = this.group > 1 ? entries.slice(first, first + this.group).map((each) => lane.token[each]) : [token];
        if (some.length > 1) this.members.set(token, some);
        const [x, y] = at(this.group > 1 ? first / this.group : laid[Number(gone)].places.get(i) ?? 0, gone);
        targets.set(token, {
          at: [x, y, size, size, 1], hue: commonest(some.map((each) => lane.dialog.hueOf(each))), look: lookOf(lane, i), dialog: lane.dialog,
        });
        this.order.push(token);
      }
    }
    this.marks.go(targets, {
      glide: glide && this.group === 1,
      from: ([x, y, w, h]) => [x, y - 16, w, h, 0],
      to: ([x, y, w, h]) => [x, y + 24, w, h, 0],
    });
  }

  /** @param {Pen} pen */
  #drawPages(pen) {
    const room = this.side > 12 ? 1 : 0;
    for (const { frames, empty, gone } of this.pages) {
      pen.lineWidth = 1;
      pen.strokeStyle = theme.soft;
      pen.setLineDash(gone ? [3, 2] : []);
      for (const { left, right, top, bottom } of frames) {
        pen.beginPath();
        pen.roundRect(left - room, top - room, right - left + 2 * room, bottom - top + 2 * room, 4);
        pen.fillStyle = theme.faint;
        if (!gone) pen.fill();
        pen.stroke();
      }
      pen.setLineDash([1.5, 2]);
      for (const [x, y, size] of empty) {
        pen.beginPath();
        pen.roundRect(x + 1.5, y + 1.5, size - 3, size - 3, 2);
        pen.fillStyle = theme.paper;
        pen.fill();
        if (size > 8) pen.stroke();
      }
    }
    pen.setLineDash([]);
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

  /** The neighbour of a token in the grid: kept and evicted are one sequence of rows.
   * @param {number | null} token @param {string} key */
  beside(token, key) {
    const rows = this.order.map((each) => {
      const [x, y] = this.place(each);
      return { each, x, y };
    }).sort((a, b) => a.y - b.y || a.x - b.x);
    const place = rows.findIndex(({ each }) => each === token);
    if (!rows.length) return null;
    if (place < 0 || key === 'Home') return rows[0].each;
    const here = rows[place];
    if (key === 'End') return rows[rows.length - 1].each;
    if (key === 'ArrowRight') return rows[Math.min(place + 1, rows.length - 1)].each;
    if (key === 'ArrowLeft') return rows[Math.max(place - 1, 0)].each;
    const way = key === 'ArrowDown' ? 1 : -1;
    const ahead = rows.filter(({ y }) => way * (y - here.y) > 1);
    if (!ahead.length) return token;
    const next = ahead[way > 0 ? 0 : ahead.length - 1].y;
    const row = ahead.filter(({ y }) => y === next);
    return row.reduce((best, tile) => (Math.abs(tile.x - here.x) < Math.abs(best.x - here.x) ? tile : best)).each;
  }
}

// ---------------------------------------------------------------------------------- the scores

const AROUND = 12; // entries on either side of the cutoff that the axis is zoomed to
const LANE = 26;
const LEFT = 46;
const BREAK = 9;

export class Scores {
  /** @param {HTMLElement} box @param {Lane} lane */
  constructor(box, lane) {
    this.lane = lane;
    this.marks = new Marks();
    this.canvas = one(box, 'canvas');
    this.lanes = lane.terms.length > 1 ? lane.terms : [];
    this.surface = NOWHERE;
    this.width = 0;
    this.top = 36;
    this.bottom = 0;
    this.tall = 9;
    this.turn = 0;
    this.now = lane.turn(0);
    this.axis = /** @type {Axis} */ ({ zoomed: false, ticks: [], breaks: [], y: () => 0 });
    this.spans = /** @type {{ from: number, most: number, both: boolean }[]} */ ([]);
    this.groups = /** @type {{ start: number, end: number, group: number[] }[]} */ ([]);
    this.edge = /** @type {number | null} */ (null);
  }

  layOut() {
    this.surface = fitted(this.canvas);
    const { width, height } = this.surface;
    this.width = width;
    this.top = 36;
    this.bottom = height - 12 - this.lanes.length * (LANE + 16);
    this.tall = Math.min(15, Math.max(9, (this.bottom - this.top) / 9));
  }

  /** Returns whether the axis is zoomed to the cutoff.
   * @param {number} turn @param {boolean} glide */
  show(turn, glide) {
    const { lane } = this;
    const now = lane.turn(turn);
    this.turn = turn;
    this.now = now;
    this.axis = this.#axis(now);
    this.spans = this.lanes.map((_, k) => this.#span(now, k));
    /** @type {Map<number, Target>} */
    const targets = new Map();
    this.#columns(now).forEach(([i, left, width]) => {
      const score = lane.score[i];
      const y = Number.isFinite(score) ? this.axis.y(score) : this.bottom - this.tall / 2;
      const wide = width > NARROW + 1 ? Math.round(4 * (width - 1)) / 4 : Math.max(width, 0.8);
      const extra = this.lanes.map((_, k) => this.#share(k, lane.values[k][i]));
      targets.set(lane.token[i], {
        at: [left, y - this.tall / 2, wide, this.tall, 1, ...extra],
        hue: lane.dialog.hueOf(lane.token[i]), look: lookOf(lane, i), dialog: lane.dialog,
      });
    });
    this.marks.go(targets, {
      glide,
      from: ([x, y, w, h, , ...extra]) => [x, y - 18, w, h, 0, ...extra.map(() => 0)],
      to: ([x, y, w, h, , ...extra]) => [x, y + 18, w, h, 0, ...extra.map(() => 0)],
    });
    return this.axis.zoomed;
  }

  /** A term is shown by how much more it is than that of the last kept; where none had to go,
   * as it stands. Returns what it is measured from, and what fills the lane.
   * @param {Turn} now @param {number} k */
  #span(now, k) {
    const column = this.lane.values[k];
    const last = now.missed.length ? now.stayed[now.stayed.length - 1] : undefined;
    const from = last === undefined ? 0 : column[last];
    const most = now.stood.reduce((most, i) => Math.max(most, Math.abs(column[i] - from)), 0) || 1;
    return { from, most, both: last !== undefined };
  }

  /** @param {number} k @param {number} value */
  #share(k, value) {
    const { from, most } = this.spans[k];
    return Number.isFinite(value) ? (value - from) / most : 0;
  }

  /** Where each entry stands from left to right: protected, kept, evicted, below the threshold. The
   * nearer to the cutoff, the wider, where not all can be.
   * @param {Turn} now */
  #columns(now) {
    const contending = [...now.stayed, ...now.missed];
    const groups = [now.shielded, contending, now.stale].filter((group) => group.length);
    const count = groups.reduce((sum, group) => sum + group.length, 0);
    const apart = 18;
    const room = this.width - LEFT - apart * (groups.length - 1) - 2;
    const even = Math.min(14, room / Math.max(count, 1));
    let near = contending.length;
    let wide = even;
    let narrow = even;
    if (even < 7) {
      wide = 9.5;
      near = Math.min(Math.floor((0.6 * room) / wide), contending.length);
      narrow = (room - near * wide) / Math.max(count - near, 1);
    }
    const from = Math.max(0, Math.min(now.stayed.length - Math.ceil(near / 2), contending.length - near));
    /** @type {[i: number, left: number, width: number][]} */
    const placed = [];
    let x = LEFT;
    this.groups = [];
    for (const group of groups) {
      const start = x;
      group.forEach((i, place) => {
        const inside = group === contending && place >= from && place < from + near;
        const width = inside ? wide : narrow;
        if (i === now.missed[0]) this.edge = x;
        placed.push([i, x, width]);
        x += width;
      });
      this.groups.push({ start, end: x, group });
      x += apart;
    }
    if (!now.missed.length || !now.stayed.length) this.edge = null;
    return placed;
  }

  /** The scores near the cutoff get most of the height; what is far above or below is pressed
   * together beyond a break, unless all fits.
   * @param {Turn} now */
  #axis(now) {
    const { lane, top, bottom, tall } = this;
    const scores = now.stood.map((i) => lane.score[i]);
    const [high, low] = [scores[0] ?? 1, scores.at(-1) ?? 0];
    const first = top + tall / 2 + 2;
    const last = bottom - tall / 2 - 2;
    const at = now.stayed.length;
    const near = now.contenders.slice(Math.max(0, at - AROUND), at + AROUND).map((i) => lane.score[i]);
    const [up, down] = [near[0] ?? high, near.at(-1) ?? low];
    const zoomed = now.cutoff !== null && near.length > 1 && up > down && (up - down) / (high - low) < 0.4;
    if (!zoomed) {
      const span = high - low || 1;
      return {
        zoomed, ticks: high > low ? [high, low] : [high], breaks: [],
        y: (/** @type {number} */ score) => (high > low ? first + ((high - score) / span) * (last - first) : (first + last) / 2),
      };
    }
    const room = 0.06 * (up - down);
    const [above, below] = [up + room, down - room];
    const band = (last - first) * 0.17;
    const upper = high > above ? first + band : first;
    const lower = low < below ? last - band : last;
    const inner = /** @type {const} */ ([high > above ? upper + BREAK : first, low < below ? lower - BREAK : last]);
    const between = (/** @type {number} */ score, /** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ a, /** @type {number} */ b) => a + ((from - score) / (from - to)) * (b - a);
    const y = (/** @type {number} */ score) => {
      if (score > above) return between(score, high, above, first, upper);
      if (score < below) return between(score, below, low, lower, last);
      return between(score, above, below, ...inner);
    };
    return {
      zoomed, y, ticks: [...(high > above ? [high] : []), up, down, ...(low < below ? [low] : [])],
      breaks: [...(high > above ? [upper + BREAK / 2] : []), ...(low < below ? [lower - BREAK / 2] : [])],
    };
  }

  /** @param {number} moment @param {number | null} hover @param {number | null} chosen */
  paint(moment, hover, chosen) {
    const moves = this.marks.settle(moment);
    const { pen, width, height } = this.surface;
    pen.clearRect(0, 0, width, height);
    this.#frame(pen, width);
    this.#stems(pen);
    this.marks.draw(pen, this.lane.dialog);
    this.lanes.forEach((term, k) => this.#term(pen, term, k, width, [hover, chosen]));
    if (hover !== null && hover !== chosen) this.marks.ring(pen, hover, 1.5);
    if (chosen !== null) this.marks.ring(pen, chosen, 2.5);
    return moves;
  }

  /** @param {Pen} pen @param {number} width */
  #frame(pen, width) {
    const { axis, now, lane, top, bottom } = this;
    const { cutoff } = now;
    const digits = lane.digits[this.turn];
    const taken = cutoff === null ? [] : [axis.y(cutoff)];
    for (const tick of axis.ticks) {
      const y = axis.y(tick);
      if (taken.some((other) => Math.abs(other - y) < 13)) continue;
      taken.push(y);
      words(pen, number(tick, digits), LEFT - 8, y + 4, { align: 'right' });
      line(pen, [[LEFT - 4, y], [width, y]], { stroke: theme.faint });
    }
    for (const y of axis.breaks) zigzag(pen, LEFT - 4, width, y);
    for (const { start, end, group } of this.groups) {
      const kind = group === now.shielded ? 'protected' : group === now.stale ? 'below the threshold' : '';
      if (kind) {
        const room = end - start > 70 || this.groups.length === 1;
        words(pen, room ? `${group.length} ${kind}` : kind.slice(0, 9), start, top - 6, {});
        line(pen, [[end + 9, top - 14], [end + 9, bottom]], { stroke: theme.faint });
      }
    }
    if (cutoff !== null) {
      const y = axis.y(cutoff);
      line(pen, [[LEFT - 4, y], [width, y]], { dash: [5, 3], width: 1.2 });
      words(pen, number(cutoff, digits), LEFT - 8, y + 4, { align: 'right', bold: true, fill: theme.ink });
    }
    if (this.edge !== null && cutoff !== null) {
      const x = this.edge - 0.5;
      const [last, first] = [lane.score[now.stayed[now.stayed.length - 1]], lane.score[now.missed[0]]];
      line(pen, [[x, top - 14], [x, bottom]], { width: 1.2 });
      const label = last === first ? 'tie' : `gap ${signed(last, first, digits).slice(1)}`;
      pen.font = `600 12px ${theme.font}`;
      const half = pen.measureText(label).width / 2 + 8;
      const middle = Math.min(Math.max(x, LEFT + half + 90), width - half - 90);
      words(pen, label, middle, 12, { size: 12, bold: true, align: 'center', fill: theme.ink });
      words(pen, `${now.stayed.length} kept ◂`, middle - half, 12, { align: 'right' });
      words(pen, `▸ ${now.missed.length} evicted`, middle + half, 12, {});
    }
  }

  /** @param {Pen} pen */
  #stems(pen) {
    const { cutoff } = this.now;
    const ground = cutoff === null ? this.bottom : this.axis.y(cutoff);
    /** @type {Map<string, Path2D>} */
    const stems = new Map(); // one stroke for each colour
    for (const { now: [x, y, w, h], hue, look, leaves } of this.marks.shown.values()) {
      if (leaves || look.includes('held')) continue; // what is protected is not measured by the cutoff
      const { fill } = this.lane.dialog.paint(hue);
      const path = stems.get(fill) ?? new Path2D();
      stems.set(fill, path);
      path.rect(x + w / 2 - Math.min(2, w) / 2, Math.min(y + h / 2, ground), Math.min(2, w), Math.abs(y + h / 2 - ground));
    }
    pen.globalAlpha = 0.45;
    for (const [fill, path] of stems) {
      pen.fillStyle = fill;
      pen.fill(path);
    }
    pen.globalAlpha = 1;
  }

  /** @param {Pen} pen @param {{ name: string }} term @param {number} k @param {number} width
   * @param {(number | null)[]} pointed */
  #term(pen, term, k, width, pointed) {
    const foot = this.bottom + 12 + (k + 1) * (LANE + 16) - 8;
    const { most, both } = this.spans[k];
    const [ground, tall] = both ? [foot - LANE / 2, LANE / 2] : [foot, LANE];
    words(pen, `${term.name}${both ? ', relative to the last kept' : ''}`, LEFT, foot - LANE - 3, {});
    words(pen, `${both ? '+' : ''}${number(most)}`, LEFT - 8, foot - LANE + 8, { align: 'right' });
    words(pen, both ? `−${number(most)}` : '0', LEFT - 8, foot + 2, { align: 'right' });
    line(pen, [[LEFT - 4, ground + 0.5], [width, ground + 0.5]], { stroke: theme.faint });
    for (const [token, { now: [x, , w, , opacity, ...extra], look }] of this.marks.shown) {
      pen.globalAlpha = opacity * (look.includes('gone') ? 0.5 : 1);
      pen.fillStyle = pointed.includes(token) ? theme.ink : theme.terms[k % theme.terms.length];
      pen.fillRect(x, ground, Math.max(1, w), -tall * extra[k]);
    }
    pen.globalAlpha = 1;
  }
}

// ---------------------------------------------------------------------------------- the row states

// A line over the turns for each, on an axis that is zoomed to its movement.
export class States {
  /** @param {HTMLElement} box @param {State[]} states @param {number[]} changes */
  constructor(box, states, changes) {
    this.changes = changes;
    this.lines = states.map((state) => ({ state, value: make('b'), canvas: make('canvas'), surface: NOWHERE }));
    box.replaceChildren(...this.lines.map(({ state, value, canvas }) => make('div', { className: 'state' },
      make('h3', {}, state.label, value), make('div', { className: 'line' }, canvas))));
  }

  layOut() {
    for (const line of this.lines) line.surface = fitted(line.canvas);
  }

  /** @param {number} turn */
  show(turn) {
    for (const { state, value, surface } of this.lines) {
      const now = state.values[turn];
      value.textContent = now === null ? '–' : decimal(now, state.digits);
      this.#paint(surface, state, turn);
    }
  }

  /** @param {Surface} surface @param {State} state @param {number} turn */
  #paint({ pen, width, height }, { low, high, start, values }, turn) {
    const [top, foot] = [4, height - 4]; // room for the dot
    const x = (/** @type {number} */ at) => ((at + 0.5) * width) / values.length;
    const y = (/** @type {number} */ level) => foot - ((level - low) / (high - low)) * (foot - top);
    pen.clearRect(0, 0, width, height);
    for (const change of this.changes) {
      const at = x(change - 0.5);
      line(pen, [[at, top], [at, foot]], { stroke: theme.soft, dash: [2, 3] });
    }
    if (start !== null) line(pen, [[0, y(start)], [width, y(start)]], { stroke: theme.soft, dash: [5, 3] });
    const known = values.flatMap((level, at) => (level === null ? [] : [/** @type {Point} */ ([x(at), y(level)])]));
    line(pen, known, { width: 1.5 });
    const now = values[turn];
    if (now === null) return;
    for (const { fill, radius } of [{ fill: theme.paper, radius: 6.5 }, { fill: theme.ink, radius: 4.5 }]) {
      pen.beginPath();
      pen.arc(x(turn), y(now), radius, 0, 7);
      pen.fillStyle = fill;
      pen.fill();
    }
  }
}
