// @ts-check
// What was said, and under each word a line for every lane that holds it.

import { make, tile } from './dom.js';
import { listenToKeys } from './entries.js';
import { headline } from './explain.js';
import { EVICTED, lanesOf } from './record.js';
import { mountWith } from './stage.js';
import { WhyInAll, fateWords } from './why_lanes.js';

/**
 * @typedef {import('./record.js').Asked} Asked
 * @typedef {import('./record.js').Lane} Lane
 * @typedef {import('./record.js').Packed} Packed
 * @typedef {import('./stage.js').Scene} Scene
 * @typedef {import('./stage.js').Stage} Stage
 */

/** @implements {Scene} */
class Transcript {
  /**
   * @param {Stage} stage
   * @param {Packed} run
   */
  constructor(stage, run) {
    const { said } = run;
    this.stage = stage;
    this.lanes = lanesOf(run);
    this.dialog = this.lanes[0].dialog;
    this.title = '';
    this.rests = true;
    this.said = said;
    this.needed = new Set(said.needed);
    /** @type {Map<number, HTMLElement[]>} */
    this.words = new Map();
    /** @type {Map<number, string>} */
    this.marked = new Map();
    /** @type {HTMLElement[]} */
    this.ringed = [];
    this.why = new WhyInAll(this.lanes, () => stage.choose(null));
    this.turns = said.turns.map((pieces, turn) => this.#turn(pieces, turn));
    this.figures = this.lanes.map(() => make('small'));
    const who = this.lanes.map((lane, k) => make('li', {}, make('em', { className: `word k${k}` }, '\u2003'), make('b', {}, lane.label), this.figures[k]));
    this.box = make('div', { className: 'said-words', role: 'listbox', tabindex: 0, 'aria-label': 'Transcript' }, ...this.turns.map(({ row }) => row));
    const frame = stage.part('.frame');
    frame.style.setProperty('--lanes', this.lanes.length);
    run.lanes.forEach(({ tint }, k) => frame.style.setProperty(`--track-${k}`, `var(--tint-${tint})`));
    frame.className = 'frame reading';
    stage.part('[data-go=picture]').hidden = true; // its marks are the page's own, which draws no picture
    frame.replaceChildren(
      make('section', { className: 'panel text' }, make('ul', { className: 'who' }, ...who), this.box, this.#key()),
      this.why.box,
    );
    this.#listen();
    listenToKeys(stage, this.box, (token, key) => this.#beside(token, key));
  }

  /**
   * @param {[text: string, token: number][]} pieces
   * @param {number} turn
   */
  #turn(pieces, turn) {
    const topic = this.dialog.hue(turn) < 0 ? null : tile(this.dialog, this.dialog.hue(turn));
    const speaker = this.said.speakers[turn];
    const words = make('div', { role: 'none' }, ...pieces.map(([text, token]) => (token < 0 ? text : this.#word(text, token))));
    const head = make('div', { className: 'speaker', role: 'none', title: 'Go to this turn', 'data-turn': turn }, make('small', {}, `${turn}`), topic, make('b', {}, speaker));
    const asks = this.said.asked.filter((each) => each.turn === turn).map((each) => this.#asks(each));
    return { row: make('div', { className: 'turn', role: 'group', 'aria-label': `turn ${turn}, ${speaker}` }, head, words, ...asks), asks };
  }

  /**
   * @param {string} text
   * @param {number} token
   */
  #word(text, token) {
    const word = make('span', { role: 'option', id: `word-${token}`, 'data-token': token }, text);
    // A token may stand in two pieces: what is told of it is told of its first.
    const before = this.words.get(token) ?? [];
    this.words.set(token, [...before, word]);
    if (before.length) word.removeAttribute('id');
    return word;
  }

  /**
   * What a turn needed, and who held it. It is a figure of the page, and no word of the transcript.
   * @param {Asked} asked
   */
  #asks({ source, values }) {
    const chips = values.map(([what, lost, token]) => {
      const held = this.lanes.filter((_, k) => !lost[k]).map(({ label }) => label);
      const gone = this.lanes.flatMap(({ label }, k) => (lost[k] ? [`${label} ${lost[k]}`] : []));
      const all = held.length === this.lanes.length && held.length > 1 ? ['all'] : held;
      const told = [held.length ? `✓ ${all.join(', ')}` : '', gone.length ? `✗ ${gone.join(', ')}` : ''].filter(Boolean);
      const look = { className: gone.length ? 'unmet' : 'met', title: 'Where it was last said, and why it was kept or evicted', 'data-token': token };
      return make('span', look, make('b', {}, what), ` ${told.join(' · ')}`);
    });
    return make('div', { className: 'asks', role: 'none', hidden: '' }, make('b', {}, source), ...chips);
  }

  #key() {
    const { needs, topics } = this.said;
    const signs = [
      [make('em', { className: 'word k0' }, '\u2003'), 'still in the cache'],
      [make('em', { className: 'word g0' }, '\u2003'), 'evicted in this turn'],
      [make('s', {}, 'struck out'), 'in no cache'],
      ...(needs ? [[make('b', {}, 'bold'), `a later ${needs} needs it`]] : []),
      ...topics.flatMap((name, hue) => (name === this.dialog.label(hue) ? [] : [[tile(this.dialog, hue), name]])),
    ];
    return make('div', { className: 'key' }, ...signs.map((sign) => make('span', {}, ...sign)));
  }

  // ------------------------------------------------------------------------------ showing

  layOut() {} // the page does

  /** @param {number} turn */
  show(turn) {
    const turns = this.lanes.map((lane) => lane.turn(turn));
    const known = this.dialog.bounds[turn + 1];
    for (const [token, pieces] of this.words) {
      const marks = token < known ? this.#marks(token, turns) : '';
      const need = this.needed.has(token) ? ' need' : '';
      const look = `word${token < known && !/k\d/.test(marks) ? ' lost' : ''}${marks}${need}`;
      if (this.marked.get(token) === look) continue;
      this.marked.set(token, look);
      for (const piece of pieces) piece.className = look;
    }
    this.turns.forEach(({ row, asks }, at) => {
      row.className = `turn ${at > turn ? 'to-come' : at === turn ? 'now' : ''}`;
      for (const ask of asks) ask.hidden = at > turn;
    });
    const asked = this.said.asked.filter((each) => each.turn <= turn).flatMap(({ values }) => values);
    this.figures.forEach((figure, k) => {
      const met = asked.filter(([, lost]) => !lost[k]).length;
      figure.textContent = `${turns[k].kept.length} kept${asked.length ? ` · ${met} of ${asked.length} needed values held` : ''}`;
    });
    this.#scroll(turn);
    this.box.dataset.turn = `${turn}`;
    return headline(this.lanes, turn);
  }

  /**
   * @param {number} token
   * @param {ReturnType<Lane['turn']>[]} turns
   */
  #marks(token, turns) {
    let marks = '';
    turns.forEach(({ at }, k) => {
      const i = at.get(token);
      if (i !== undefined) marks += this.lanes[k].status[i] < EVICTED ? ` k${k}` : ` g${k}`;
    });
    return marks;
  }

  /**
   * The turn is in sight, with what came right before it.
   * @param {number} turn
   */
  #scroll(turn) {
    const { row } = this.turns[turn];
    const { box } = this;
    if (row.offsetTop < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = row.offsetTop - Math.max(0, box.clientHeight - row.offsetHeight) * 0.6;
    }
  }

  /**
   * @param {number} turn
   * @param {number | null} token
   */
  point(turn, token) {
    const { stage } = this;
    const { entry } = stage.state;
    for (const piece of this.ringed) piece.classList.remove('pointed', 'picked');
    this.ringed = [entry, stage.hover].flatMap((each) => (each === null ? [] : this.words.get(each) ?? []));
    for (const piece of this.ringed) piece.classList.add(Number(piece.dataset.token) === entry ? 'picked' : 'pointed');
    this.why.show(turn, token, stage.holds(), stage.told());
  }

  paint() { return false; } // nothing moves

  draw() {}

  name() { this.activate(); }

  settled() {}

  activate() {
    const token = this.stage.hover ?? this.stage.state.entry;
    const [word] = (token !== null && this.words.get(token)) || [];
    if (token === null || !word) {
      this.box.removeAttribute('aria-activedescendant');
      return;
    }
    const fates = this.lanes.map((lane) => `${lane.label}: ${fateWords(lane, this.stage.state.turn, token).words}`);
    word.setAttribute('aria-label', [`“${word.textContent}”`, `token ${token}`, ...fates].join(', '));
    this.box.setAttribute('aria-activedescendant', word.id);
  }

  // ------------------------------------------------------------------------------ doing

  /**
   * The word that a key leads to: along the words, or to where the turn before or after begins.
   * @param {number | null} token
   * @param {string} key
   */
  #beside(token, key) {
    const last = this.dialog.born.length - 1;
    const { bounds, born } = this.dialog;
    const from = token ?? bounds[this.stage.state.turn];
    const to = /** @type {{ [key: string]: number }} */ ({
      ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last,
      ArrowUp: bounds[Math.max(0, born[from] - 1)], ArrowDown: bounds[born[from] + 1],
    });
    return token === null && key.startsWith('Arrow') ? from : Math.min(Math.max(to[key], 0), last);
  }

  #listen() {
    const said = (/** @type {Event} */ event, /** @type {string} */ what) => {
      const value = /** @type {Element} */ (event.target).closest(`[${what}]`)?.getAttribute(what);
      return value === null || value === undefined ? null : Number(value);
    };
    this.box.addEventListener('pointermove', (event) => { if (event.pointerType === 'mouse') this.stage.look(said(event, 'data-token')); });
    this.box.addEventListener('pointerleave', () => this.stage.look(null));
    this.box.addEventListener('click', (event) => {
      const turn = said(event, 'data-turn');
      const hit = said(event, 'data-token');
      if (hit !== null) this.stage.choose(hit);
      else if (turn !== null) {
        this.stage.pause();
        this.stage.go(turn);
      }
    });
  }
}

export const mount = mountWith((stage, run) => new Transcript(stage, run));
