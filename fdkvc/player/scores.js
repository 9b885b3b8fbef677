// The decision: the scores of a turn around the cutoff, and under them a lane for each term.

import { one } from './dom.js';
import { LEFT, axisOf, bandOf, columnsOf, drawnWidth, footOf, spanOf } from './layout/scores.js';
import { GHOST, Marks, NOWHERE, cut as cutAxis, fitted, line, lookOf, theme, words } from './marks.js';
import { number, signed } from './numbers.js';

export class Scores {
  /** @param {HTMLElement} box @param {Lane} lane
   * @param {Lane} [before] the previous run, whose scores have the same scale @param {string} called what it is called */
  constructor(box, lane, before = undefined, called = '') {
    this.lane = lane;
    this.before = before;
    this.called = called;
    this.marks = new Marks();
    this.canvas = one(box, 'canvas');
    this.terms = lane.terms.length > 1 ? lane.terms : [];
    this.surface = NOWHERE;
    this.band = bandOf(0, 0, 0);
    this.turn = 0;
    this.now = lane.turn(0);
    this.axis = axisOf(this.band, { all: [], contending: [], stayed: 0, cutoff: null });
    this.spans = /** @type {(ReturnType<typeof spanOf> & { cutoff: number | undefined })[]} */ ([]);
    this.placed = columnsOf(this.band, this.now);
  }

  layOut() {
    this.surface = fitted(this.canvas);
    this.band = bandOf(this.surface.width, this.surface.height, this.terms.length);
  }

  show(/** @type {Shown} */ { turn, glide }) {
    const { lane, band: { bottom, tall } } = this;
    const now = lane.turn(turn);
    const { stood, contenders, stayed, missed, cutoff } = now;
    const scoresOf = (/** @type {number[]} */ entries) => entries.map((i) => lane.score[i]);
    this.turn = turn;
    this.now = now;
    const past = this.before?.turn(turn).stood.map((i) => /** @type {Lane} */ (this.before).score[i]) ?? [];
    this.axis = axisOf(this.band, { all: [...scoresOf(stood), ...past].sort((one, other) => other - one), contending: scoresOf(contenders), stayed: stayed.length, cutoff });
    const last = missed.length ? stayed.at(-1) : undefined;
    this.spans = this.terms.map((_, k) => {
      const column = lane.values[k];
      return { ...spanOf(stood.map((i) => column[i])), cutoff: last === undefined ? undefined : column[last] };
    });
    this.placed = columnsOf(this.band, now);
    const targets = new Map(this.placed.columns.map(({ i, left, width }) => {
      const score = lane.score[i];
      const y = Number.isFinite(score) ? this.axis.y(score) : bottom - tall / 2;
      const shares = this.spans.map(({ share }, k) => share(lane.values[k][i]));
      const at = [left, y - tall / 2, drawnWidth(width), tall, 1, ...shares];
      const hue = lane.dialog.hueOf(lane.token[i]);
      return /** @type {[number, Target]} */ ([lane.token[i], { at, hue, look: lookOf(lane, i), dialog: lane.dialog, text: lane.dialog.letter(hue) }]);
    }));
    const off = (/** @type {number} */ by) => (/** @type {At} */ [x, y, w, h, , ...shares]) => [x, y + by, w, h, 0, ...shares.map(() => 0)];
    this.marks.go(targets, { glide, from: off(-18), to: off(18) });
  }

  /** @param {number} moment @param {number | null} hover @param {number | null} chosen */
  paint(moment, hover, chosen) {
    const moves = this.marks.settle(moment);
    const { pen, width, height } = this.surface;
    pen.clearRect(0, 0, width, height);
    this.#drawAxis(pen, width);
    this.#drawGroups(pen);
    this.#drawEdge(pen, width);
    this.#drawBefore(pen, width);
    this.#drawStems(pen);
    this.marks.draw(pen, this.lane.dialog);
    this.terms.forEach((term, k) => this.#drawTerm(pen, term.name, k, width, [hover, chosen]));
    if (hover !== null && hover !== chosen) this.marks.ring(pen, hover, 1.5);
    if (chosen !== null) this.marks.ring(pen, chosen, 2.5);
    return moves;
  }

  /** @param {Pen} pen @param {number} width */
  #drawAxis(pen, width) {
    const { axis, now: { cutoff } } = this;
    const digits = this.lane.digits[this.turn];
    const taken = cutoff === null ? [] : [axis.y(cutoff)];
    for (const tick of axis.ticks) {
      const y = axis.y(tick);
      if (taken.some((other) => Math.abs(other - y) < 13)) continue;
      taken.push(y);
      words(pen, number(tick, digits), LEFT - 8, y + 4, { align: 'right' });
      line(pen, [[LEFT - 4, y], [width, y]], { stroke: theme.faint });
    }
    for (const y of axis.breaks) cutAxis(pen, LEFT - 4, width, y);
    if (cutoff === null) return;
    const y = axis.y(cutoff);
    line(pen, [[LEFT - 4, y], [width, y]], { dash: [5, 3], width: 1.2 });
    words(pen, number(cutoff, digits), LEFT - 8, y + 4, { align: 'right', bold: true, fill: theme.ink });
  }

  #drawGroups(/** @type {Pen} */ pen) {
    const { now, placed: { spans }, band: { top, bottom } } = this;
    for (const { start, end, group } of spans) {
      const kind = group === now.shielded ? 'protected' : group === now.stale ? 'below the threshold' : '';
      if (!kind) continue;
      const room = end - start > 70 || spans.length === 1;
      words(pen, room ? `${number(group.length)} ${kind}` : kind.slice(0, 9), start, top - 6, {});
      line(pen, [[end + 9, top - 14], [end + 9, bottom]], { stroke: theme.faint });
    }
  }

  /** @param {Pen} pen @param {number} width */
  #drawEdge(pen, width) {
    const { now: { stayed, missed, cutoff }, lane: { score, digits }, placed: { edge }, band: { top, bottom } } = this;
    if (edge === null || cutoff === null) return;
    const x = edge - 0.5;
    const [last, first] = [score[stayed[stayed.length - 1]], score[missed[0]]];
    line(pen, [[x, top - 14], [x, bottom]], { width: 1.2 });
    const label = last === first ? 'tie' : `first evicted ${signed(last, first, digits[this.turn]).slice(1)} lower`;
    pen.font = `600 12px ${theme.font}`;
    const half = pen.measureText(label).width / 2 + 8;
    const middle = Math.min(Math.max(x, LEFT + half + 90), width - half - 90);
    words(pen, label, middle, 12, { size: 12, bold: true, align: 'center', fill: theme.ink });
    words(pen, `${number(stayed.length)} kept ◂`, middle - half, 12, { align: 'right' });
    words(pen, `▸ ${number(missed.length)} evicted`, middle + half, 12, {});
  }

  /** The scores of the previous run from the best to the worst, and its cutoff. @param {Pen} pen @param {number} width */
  #drawBefore(pen, width) {
    const { before, axis, now: { shielded }, placed: { columns } } = this;
    if (!before) return;
    const { contenders, cutoff } = before.turn(this.turn);
    const places = columns.slice(shielded.length);
    const points = contenders.slice(0, places.length).map((i, k) => /** @type {Point} */ ([places[k].left + places[k].width / 2, axis.y(before.score[i])]));
    line(pen, points, GHOST());
    if (cutoff === null) return;
    line(pen, [[width - 60, axis.y(cutoff)], [width, axis.y(cutoff)]], GHOST());
    words(pen, `cutoff, ${this.called} ${number(cutoff, before.digits[this.turn])}`, width, axis.y(cutoff) - 4, { align: 'right', fill: theme.ink });
  }

  #drawStems(/** @type {Pen} */ pen) {
    const { cutoff } = this.now;
    const ground = cutoff === null ? this.band.bottom : this.axis.y(cutoff);
    const stems = /** @type {Map<string, Path2D>} */ (new Map()); // one stroke for each colour
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

  /** @param {Pen} pen @param {string} name @param {number} k @param {number} width @param {(number | null)[]} pointed */
  #drawTerm(pen, name, k, width, pointed) {
    const { lane } = this.band;
    const foot = footOf(this.band, k);
    const { low, high, foot: below, share, cutoff } = this.spans[k];
    const y = foot - lane * below;
    words(pen, `${name}${cutoff === undefined ? '' : ` · dashed: the last kept, ${number(cutoff)}`}`, LEFT, foot - lane - 3, {});
    words(pen, number(high), LEFT - 8, foot - lane + 8, { align: 'right' });
    words(pen, number(low), LEFT - 8, foot + 2, { align: 'right' });
    line(pen, [[LEFT - 4, y], [width, y]], { stroke: theme.soft });
    for (const [token, { now: [x, , w, , opacity, ...shares], look }] of this.marks.shown) {
      pen.globalAlpha = opacity * (look.includes('gone') ? 0.5 : 1);
      pen.fillStyle = pointed.includes(token) ? theme.ink : theme.terms[k % theme.terms.length];
      pen.fillRect(x, y, Math.max(1, w), -lane * shares[k]);
    }
    pen.globalAlpha = 1;
    if (cutoff === undefined) return;
    const level = y - lane * share(cutoff);
    line(pen, [[LEFT - 4, level], [width, level]], { dash: [5, 3], width: 1.2 });
  }
}
