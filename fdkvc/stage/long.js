// A lane of a long dialog: when each token was cached, and the entries of the turns that are shown.

import { Dialog, EVICTED, KEPT, Lane, NEW, NEW_EVICTED } from './record.js';

/** @import { Column, LaneHead, Neighbours, Packed } from './types.js' */

const SHOWN = 3; // turns whose entries are held at once

class LongLane {
  /** @param {LaneHead} head @param {Column[]} columns @param {Dialog} dialog */
  constructor(head, [difference, first, end], dialog) {
    this.long = true;
    this.label = head.label;
    this.hued = head.hued ? '' : null;
    this.budgets = head.budgets;
    this.budget = Math.max(...head.budgets);
    this.pages = head.pages;
    this.digits = head.digits;
    this.terms = [];
    this.dialog = dialog;
    this.first = first;
    this.end = end;
    let token = 0;
    this.stays = difference.map((step) => (token = (token + step) >>> 0));
    const tokens = dialog.born.length;
    // An entry is its token in the part of the turn: the columns of a turn are written when it is shown.
    this.token = new Uint32Array(SHOWN * tokens).map((_, i) => i % tokens);
    this.status = new Uint8Array(SHOWN * tokens);
    this.rule = new Uint8Array(0);
    this.isProtected = new Uint8Array(0);
    this.score = new Float32Array(0);
    this.values = [this.score];
    /** @type {ReturnType<LongLane['ordered']>[]} */
    this.held = [];
    this.lastEnd = new Uint32Array(tokens); // of each token's stays; 0 for none
    const counts = new Uint32Array(dialog.turns + 1);
    this.stays.forEach((each, k) => {
      this.lastEnd[each] = Math.max(this.lastEnd[each], end[k]);
      counts[first[k]] += 1;
      counts[end[k]] -= 1;
    });
    const kept = counts.map((sum => (step) => (sum += step))(0));
    const came = (/** @type {number} */ turn) => dialog.bounds[turn + 1] - dialog.bounds[turn];
    this.most = {
      kept: Math.max(1, ...kept),
      gone: dialog.current.reduce((most, _, turn) => Math.max(most, (turn ? kept[turn - 1] : 0) + came(turn) - kept[turn]), 0),
    };
  }

  /** @param {number} turn */
  turn(turn) {
    const place = this.held.findIndex((each) => each.turn === turn);
    if (place === 0) return this.held[0];
    const used = new Set(this.held.map((each) => each.part));
    const part = place > 0 ? this.held[place].part : this.held.length < SHOWN ? Array.from({ length: SHOWN }, (_, each) => each).findIndex((each) => !used.has(each)) : this.held[SHOWN - 1].part;
    const now = place > 0 ? this.held[place] : this.ordered(turn, part);
    this.held = [now, ...this.held.filter((each) => each !== now && each.part !== part)];
    return now;
  }

  /** @param {number} turn @param {number} part */
  ordered(turn, part) {
    const { dialog: { bounds, born }, first, end, stays, status } = this;
    const base = part * born.length;
    status.fill(0, base, base + born.length);
    status.fill(NEW_EVICTED, base + bounds[turn], base + bounds[turn + 1]);
    for (let k = 0; k < stays.length; k += 1) {
      if (first[k] <= turn && turn < end[k]) status[base + stays[k]] = born[stays[k]] === turn ? NEW : KEPT;
      else if (end[k] === turn) status[base + stays[k]] = EVICTED;
    }
    const byAge = [];
    for (let i = base; i < base + bounds[turn + 1]; i += 1) if (status[i]) byAge.push(i);
    const kept = byAge.filter((i) => status[i] < EVICTED);
    const gone = byAge.filter((i) => status[i] >= EVICTED);
    const at = { get: (/** @type {number} */ token) => (status[base + token] ? base + token : undefined) };
    return {
      turn, part, at, byAge, kept, gone, byScore: byAge, rank: new Map(), cutoff: null,
      stood: byAge, stale: [], contenders: byAge, shielded: [], stayed: kept, missed: gone,
    };
  }

  /** @param {number} turn @param {number} token */
  find(turn, token) { return this.turn(turn).at.get(token); }

  /** When a token was evicted for good, up to a turn; null while it is in the cache.
   * @param {number} turn @param {number} token */
  left(turn, token) {
    if (this.dialog.born[token] > turn || this.#stays(token).some(([first, end]) => first <= turn && turn < end)) return null;
    const ends = this.#stays(token).map(([, end]) => end).filter((end) => end <= turn);
    return Math.max(this.dialog.born[token], ...ends);
  }

  /** @param {number} token @returns {[first: number, end: number][]} */
  #stays(token) {
    if (!this.lastEnd[token]) return [];
    /** @type {[number, number][]} */
    const found = [];
    for (let k = this.stays.indexOf(token); k >= 0; k = this.stays.indexOf(token, k + 1)) found.push([this.first[k], this.end[k]]);
    return found;
  }

  /** @param {number} turn @param {number} i */
  pageOf(turn, i) { return this.token[i]; }

  /** @param {number} turn @param {number[]} entries */
  laid(turn, entries) { return { places: new Map(entries.map((i, place) => [i, place])), begins: /** @type {number[]} */ ([]) }; }

  paged() { return ''; }

  course() { return []; }

  /** Each turn's runs of neighbours by age that are of one topic: turn by turn what each past turn has left.
   * @returns {Neighbours[]} */
  river() {
    const { dialog, first, end, stays } = this;
    const { turns, born } = dialog;
    const left = new Int32Array(turns * (turns + 1));
    stays.forEach((token, k) => {
      left[born[token] * (turns + 1) + first[k]] += 1;
      left[born[token] * (turns + 1) + end[k]] -= 1;
    });
    for (let i = 1; i < left.length; i += 1) if (i % (turns + 1)) left[i] += left[i - 1];
    /** @type {Neighbours[]} */
    const runs = [];
    for (let turn = 0; turn < turns; turn += 1) {
      /** @type {Neighbours | null} */
      let open = null;
      let slot = 0;
      for (let from = 0; from <= turn; from += 1) {
        const many = left[from * (turns + 1) + turn];
        if (!many) continue;
        const hue = dialog.hueOf(dialog.bounds[from + 1] - 1); // calls come before the words of their turn
        if (open && open.hue === hue) open.high += many;
        else runs.push((open = { turn, low: slot, high: slot + many, hue }));
        slot += many;
      }
    }
    return runs;
  }

  /** The slot by age of a token at the end of each turn that keeps it.
   * @param {number} token @returns {[turn: number, slot: number][]} */
  path(token) {
    const { dialog: { turns }, first, end, stays } = this;
    const older = new Int32Array(turns + 1);
    stays.forEach((each, k) => {
      if (each >= token) return;
      older[first[k]] += 1;
      older[end[k]] -= 1;
    });
    for (let turn = 1; turn < turns; turn += 1) older[turn] += older[turn - 1];
    return this.#stays(token).flatMap(([from, to]) => Array.from({ length: to - from }, (_, k) => /** @type {[number, number]} */ ([from + k, older[from + k]])));
  }
}

/** The runs of a packed run over several. @param {Packed} run */
export function lanesOf(run) {
  const dialog = new Dialog(run.dialog, run.palette, run.topicless);
  return run.lanes.map((head, k) => {
    const columns = run.columns.slice(3 * k, 3 * k + 3);
    return head.long ? /** @type {Lane} */ (/** @type {any} */ (new LongLane(head, columns, dialog))) : new Lane(head, columns, dialog);
  });
}
