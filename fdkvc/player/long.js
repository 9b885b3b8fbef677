// A lane of a long dialog: when each token was cached, and the entries of the turns that are shown.

import { Dialog, EVICTED, KEPT, Lane, NEW, NEW_EVICTED } from './record.js';

const SHOWN = 3; // turns whose entries are held at once

class LongLane extends Lane {
  /** @param {LaneHead} head @param {Column[]} columns @param {Dialog} dialog */
  constructor(head, [difference, since, end], dialog) {
    super(head, [new Uint32Array(0), new Uint8Array(0), new Float32Array(0)], dialog);
    this.since = since;
    this.end = end;
    let token = 0;
    this.stays = difference.map((step) => (token = (token + step) >>> 0));
    const tokens = dialog.born.length;
    // An entry's index is its token, offset by its turn's part: a turn's columns are written when it is shown.
    this.token = new Uint32Array(SHOWN * tokens).map((_, i) => i % tokens);
    this.status = new Uint8Array(SHOWN * tokens);
    this.held = /** @type {(Turn & { turn: number, part: number })[]} */ ([]);
    this.lastEnd = new Uint32Array(tokens); // of each token's stays; 0 for none
    const counts = new Uint32Array(dialog.turns + 1);
    this.stays.forEach((stayed, k) => {
      this.lastEnd[stayed] = Math.max(this.lastEnd[stayed], end[k]);
      counts[since[k]] += 1;
      counts[end[k]] -= 1;
    });
    const kept = counts.map((sum => (step) => (sum += step))(0));
    const came = (/** @type {number} */ turn) => dialog.bounds[turn + 1] - dialog.bounds[turn];
    this.most = {
      kept: Math.max(1, ...kept),
      gone: dialog.current.reduce((most, _, turn) => Math.max(most, (turn ? kept[turn - 1] : 0) + came(turn) - kept[turn]), 0),
    };
  }

  turn(/** @type {number} */ turn) {
    if (this.held[0]?.turn === turn) return this.held[0];
    const part = this.held.length < SHOWN ? this.held.length : this.held[SHOWN - 1].part; // of the oldest
    const now = this.held.find((shown) => shown.turn === turn) ?? this.#entries(turn, part);
    this.held = [now, ...this.held.filter((shown) => shown.part !== now.part)];
    return now;
  }

  /** @param {number} turn @param {number} part */
  #entries(turn, part) {
    const { dialog: { bounds, born }, since, end, stays, status } = this;
    const base = part * born.length;
    status.fill(0, base, base + born.length);
    status.fill(NEW_EVICTED, base + bounds[turn], base + bounds[turn + 1]);
    for (let k = 0; k < stays.length; k += 1) {
      if (since[k] <= turn && turn < end[k]) status[base + stays[k]] = born[stays[k]] === turn ? NEW : KEPT;
      else if (end[k] === turn) status[base + stays[k]] = EVICTED;
    }
    const byAge = [];
    for (let i = base; i < base + bounds[turn + 1]; i += 1) if (status[i]) byAge.push(i);
    const kept = byAge.filter((i) => status[i] < EVICTED);
    const gone = byAge.filter((i) => status[i] >= EVICTED);
    const at = { get: (/** @type {number} */ token) => (status[base + token] ? base + token : undefined) };
    return {
      turn, part, at, byAge, kept, gone, rank: new Map(), cutoff: null,
      stood: byAge, stale: [], contenders: byAge, shielded: [], stayed: kept, missed: gone,
    };
  }

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
    const stays = /** @type {[number, number][]} */ ([]);
    for (let k = this.stays.indexOf(token); k >= 0; k = this.stays.indexOf(token, k + 1)) stays.push([this.since[k], this.end[k]]);
    return stays;
  }

  /** In each turn, the runs of entries of one topic that are neighbours by age: counted by the turn they are from.
   * @returns {Neighbours[]} */
  river() {
    const { dialog, since, end, stays } = this;
    const { turns, born } = dialog;
    const left = new Int32Array(turns * (turns + 1));
    stays.forEach((token, k) => {
      left[born[token] * (turns + 1) + since[k]] += 1;
      left[born[token] * (turns + 1) + end[k]] -= 1;
    });
    for (let i = 1; i < left.length; i += 1) if (i % (turns + 1)) left[i] += left[i - 1];
    const runs = /** @type {Neighbours[]} */ ([]);
    for (let turn = 0; turn < turns; turn += 1) {
      let open = /** @type {Neighbours | null} */ (null);
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
    const { dialog: { turns }, since, end, stays } = this;
    const older = new Int32Array(turns + 1);
    stays.forEach((stayed, k) => {
      if (stayed >= token) return;
      older[since[k]] += 1;
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
    return new (head.long ? LongLane : Lane)(head, columns, dialog);
  });
}
