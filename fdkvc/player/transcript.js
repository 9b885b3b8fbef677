// The text of a dialog, and a line under each word that a lane holds: of one lane at a time.

import { make, tile } from './dom.js';
import { listenToKeys, listenToPointer } from './entries.js';
import { fateWords } from './fate.js';
import { hub } from './hub.js';
import { piecesOf, rowsNear, scrolledTo, wordBeside } from './layout/transcript.js';
import { lanesOf } from './long.js';
import { number } from './numbers.js';
import { EVICTED, SPANS } from './record.js';
import { WhyInAll } from './why_lanes.js';

const WHOLE = 5000; // tokens up to which all words are elements; in a longer dialog, only those near the view
const AHEAD = 2; // turns before and after the shown one whose words are made elements while nothing moves
const AGAIN = 3; // most attempts to bring a turn into view: what opens above moves it
const LATER = 300; // milliseconds after the rows in view until all others are laid out

/** @implements {Scene} */
export class Transcript {
  /** @param {Stage} stage @param {Packed} run */
  constructor(stage, run) {
    const { text } = run;
    this.stage = stage;
    this.lanes = lanesOf(run);
    this.dialog = this.lanes[0].dialog;
    this.text = text;
    this.needed = new Set(text.needed_tokens);
    this.words = /** @type {Map<number, HTMLElement[]>} */ (new Map());
    this.marked = /** @type {Map<number, string>} */ (new Map());
    this.ringed = /** @type {HTMLElement[]} */ ([]);
    this.why = new WhyInAll(this.lanes, () => stage.choose(null));
    this.shown = 0;
    this.arriving = false; // at a turn that has yet to be brought into view
    this.turns = text.turns.map(([text], turn) => this.#turn(text, turn));
    this.opened = /** @type {Set<number>} */ (new Set()); // turns whose words are elements
    this.figures = this.lanes.map(() => make('small'));
    this.underlined = text.underlined;
    this.tints = run.lanes.map(({ tint }) => tint);
    // On a page of the app, the policy is chosen beside the stage; a saved scene has radio buttons.
    const who = make('div', { className: 'who', ...(hub.alone ? { role: 'radiogroup', 'aria-label': 'Underlined policy' } : {}) }, ...this.lanes.map((lane, k) => make('label', {},
      hub.alone ? make('input', { type: 'radio', name: 'underlined', value: k, checked: k === text.underlined ? '' : null }) : null,
      make('em', { className: 'word held', style: `--track: var(--tint-${this.tints[k]})` }, '\u2003'), make('b', { 'data-policy': lane.hued }, lane.label), this.figures[k])));
    this.who = who;
    who.addEventListener('change', ({ target }) => {
      this.#pick(Number(/** @type {HTMLInputElement} */ (target).value));
      this.#mark(this.words.keys());
    });
    this.box = make('div', { className: 'dialog-words', role: 'listbox', tabindex: 0, 'aria-label': 'Transcript' }, ...this.turns.map(({ row }) => row));
    const frame = stage.part('.frame');
    frame.className = 'frame reading';
    frame.replaceChildren(
      make('section', { className: 'panel text' }, who, this.box, this.#key()),
      this.why.box,
    );
    this.#pick(text.underlined);
    this.long = this.dialog.born.length > WHOLE;
    this.box.classList.toggle('long', this.long);
    if (!this.long) this.turns.forEach((_, turn) => this.#open(turn));
    const numberAt = (/** @type {Event} */ event, /** @type {string} */ what) => {
      const value = /** @type {Element} */ (event.target).closest(`[${what}]`)?.getAttribute(what);
      return value ? Number(value) : null;
    };
    this.box.addEventListener('scroll', () => { if (!this.arriving) this.#openNear(); }, { passive: true });
    listenToPointer(stage, this.box, (event) => numberAt(event, 'data-token'), (event) => {
      const turn = numberAt(event, 'data-turn');
      const token = numberAt(event, 'data-token');
      if (token !== null) stage.choose(token);
      else if (turn !== null) {
        stage.pause();
        stage.go(turn);
      }
    });
    listenToKeys(stage, this.box, (token, key) => wordBeside(this.dialog, stage.state.turn, token, key));
  }

  /** @param {string} text @param {number} turn */
  #turn(text, turn) {
    const topic = this.dialog.current[turn] < 0 ? null : tile(this.dialog, this.dialog.current[turn]);
    const speaker = SPANS[this.dialog.kindOf(this.#tokens(turn).at(-1) ?? -1)] ?? this.text.speakers[turn];
    const words = make('div', { role: 'none' }, text);
    // Words of others than the user and the assistant, such as a tool, are marked with their kind.
    const kinds = new Set(this.#tokens(turn).map((token) => this.dialog.kindOf(token)));
    const marks = [...kinds].filter((kind) => !['', 'user', 'assistant'].includes(kind) && SPANS[kind] !== speaker).map((kind) => make('i', { className: 'kind' }, SPANS[kind]));
    const head = make('div', { className: 'speaker', role: 'none', title: 'Go to this turn', 'data-turn': turn }, make('small', {}, `${turn}`), topic, make('b', {}, speaker), ...marks);
    const demands = this.text.demands.filter((needs) => needs.turn === turn).map((needs) => this.#demands(needs));
    return { row: make('div', { role: 'group', 'aria-label': `turn ${turn}, ${speaker}`, 'data-row': turn }, head, words, ...demands), demands, words };
  }

  /** Makes elements of a turn's words, and marks them. @param {number} turn */
  #open(turn) {
    if (!this.turns[turn] || this.opened.has(turn)) return;
    this.opened.add(turn);
    this.turns[turn].row.style.contentVisibility = 'visible'; // laid out now: its height is needed
    const [text, lengths] = this.text.turns[turn];
    const pieces = piecesOf(text, lengths, this.dialog.bounds[turn])
      .map((piece) => (piece.token === null || !piece.text ? piece.text : this.#word(piece.text, piece.token)));
    this.turns[turn].words.replaceChildren(...pieces);
    this.#mark(this.#tokens(turn));
  }

  #tokens(/** @type {number} */ turn) {
    const { bounds } = this.dialog;
    return Array.from({ length: bounds[turn + 1] - bounds[turn] }, (_, place) => bounds[turn] + place);
  }

  #close(/** @type {number} */ turn) {
    this.opened.delete(turn);
    for (const token of this.#tokens(turn)) {
      this.words.delete(token);
      this.marked.delete(token);
    }
    [this.turns[turn].words.textContent] = this.text.turns[turn];
    this.turns[turn].row.style.contentVisibility = '';
  }

  // In a long dialog, opens the turns near the view and closes others. Returns whether any was opened.
  #openNear() {
    if (!this.long) return false;
    const { scrollTop, clientHeight } = this.box;
    const near = new Set([this.shown, ...rowsNear(this.turns.length, (turn) => this.#boxOf(turn), scrollTop, clientHeight)]);
    for (const turn of this.opened) if (!near.has(turn) && Math.abs(turn - this.shown) > AHEAD) this.#close(turn);
    const before = this.opened.size;
    for (const turn of near) this.#open(turn);
    return this.opened.size > before;
  }

  /** @param {string} text @param {number} token */
  #word(text, token) {
    const before = this.words.get(token) ?? []; // a token may have two pieces: the first one is named
    const unseen = text ? 'white space' : 'mark of the chat template';
    const label = text.trim() ? null : unseen;
    const word = make('span', { role: 'option', id: before.length ? null : `word-${token}`, 'aria-label': label, 'data-token': token }, text);
    if (this.dialog.kindOf(token) === 'call') word.dataset.kind = 'call';
    this.words.set(token, [...before, word]);
    return word;
  }

  /** What a turn needed, and whether a lane held it. It is a note of the page, not part of the transcript.
   * @param {Demands} demands */
  #demands({ turn, source, values }) {
    const chips = values.flatMap(([what, lost, token]) => lost.map((words, k) => make('span', {
      className: words ? 'unmet' : 'met', title: 'Where it was last mentioned, and why it was kept or evicted',
      'data-lane': k, 'data-token': token,
    }, make('b', {}, what), words ? ` ✗ ${words}` : ` ✓ held in turn ${turn}`)));
    return make('div', { className: 'demands', role: 'none', hidden: '' }, make('b', {}, source), ...chips);
  }

  // Words and needed values are marked by their fate in one lane.
  #pick(/** @type {number} */ lane) {
    this.underlined = lane;
    [...this.who.children].forEach((label, k) => label.classList.toggle('of', k === lane));
    this.box.style.setProperty('--track', `var(--tint-${this.tints[lane]})`);
    for (const chip of /** @type {any} */ (this.box.querySelectorAll('[data-lane]'))) chip.hidden = Number(chip.dataset.lane) !== lane;
  }

  #key() {
    const { source } = this.text;
    const signs = [
      [make('em', { className: 'word held' }, '\u2003'), 'still in the cache'],
      [make('em', { className: 'word gone' }, '\u2003'), 'evicted in this turn'],
      [make('s', {}, 'struck out'), 'no longer in the cache'],
      ...(source ? [[make('b', {}, 'bold'), `a later ${source} needs it`]] : []),
      ...this.dialog.titles.map((name, hue) => [tile(this.dialog, hue), name]),
    ];
    return make('div', { className: 'key' }, ...signs.map((sign) => make('span', {}, ...sign)));
  }

  // First only the rows in view are laid out, while others have an estimated height; later all are.
  layOut() {
    if (!this.long || this.box.classList.contains('whole')) return;
    const letters = this.turns[0].words.clientWidth / 7.5; // of a line, at about 7.5 pixels each
    this.turns.forEach(({ row }, turn) => {
      row.style.containIntrinsicBlockSize = `auto ${1.6 * Math.ceil(1 + this.text.turns[turn][0].length / letters)}em`;
    });
    setTimeout(() => {
      this.box.classList.add('whole'); // once each row's height is known, a step takes less time
      this.#arrive();
    }, LATER);
  }

  show(/** @type {Shown} */ { turn }) {
    this.shown = turn;
    this.arriving = true;
    if (this.long) this.#scroll(turn); // while nothing has changed, so that layout runs once
    this.#openNear();
    this.#mark(this.words.keys());
    this.turns.forEach(({ row, demands }, at) => {
      const look = `turn ${at > turn ? 'to-come' : at === turn ? 'now' : ''}`;
      if (row.className === look) return;
      row.className = look;
      for (const figure of demands) figure.hidden = at > turn;
    });
    const values = this.text.demands.filter((needs) => needs.turn <= turn).flatMap(({ values }) => values);
    this.figures.forEach((figure, k) => {
      const met = values.filter(([, lost]) => !lost[k]).length;
      figure.textContent = `${number(this.lanes[k].turn(turn).kept.length)} kept${values.length ? ` · ${met} of ${values.length} values were there when calls needed them` : ''}`;
    });
    this.box.dataset.turn = `${turn}`;
  }

  /** Marks words by their fate up to the shown turn. @param {Iterable<number>} tokens */
  #mark(tokens) {
    const lane = this.lanes[this.underlined];
    const { at } = lane.turn(this.shown);
    const read = this.dialog.bounds[this.shown + 1];
    for (const token of tokens) {
      const i = at.get(token);
      const mark = token >= read ? '' : i === undefined ? ' lost' : lane.status[i] < EVICTED ? ' held' : ' lost gone';
      const look = `word${mark}${this.needed.has(token) ? ' need' : ''}`;
      if (this.marked.get(token) === look) continue;
      this.marked.set(token, look);
      for (const piece of this.words.get(token) ?? []) piece.className = look;
    }
  }

  /** The turn is in view, with what came right before it. @param {number} turn */
  #scroll(turn) {
    const { scrollTop, clientHeight } = this.box;
    this.box.scrollTop = scrolledTo(this.#boxOf(turn), { top: scrollTop, height: clientHeight });
  }

  #boxOf(/** @type {number} */ turn) {
    const { offsetTop: top, offsetHeight: height } = this.turns[turn].row;
    return { top, height };
  }

  /** @param {number} turn @param {number | null} token */
  point(turn, token) {
    const { stage } = this;
    for (const piece of this.ringed) piece.classList.remove('pointed', 'picked');
    const ring = (/** @type {number | null} */ token, /** @type {string} */ look) => {
      // A value is one thing: all pieces of the mention are marked.
      const tokens = this.dialog.values.get(token ?? -1)?.tokens ?? [token ?? -1];
      const words = tokens.flatMap((piece) => this.words.get(piece) ?? []);
      for (const word of words) word.classList.add(look);
      this.ringed.push(...words);
    };
    this.ringed = [];
    ring(stage.state.entry, 'picked');
    ring(stage.hover, 'pointed');
    this.why.show(turn, token, stage.holds(), stage.sentences());
    if (this.arriving) this.#arrive();
  }

  // Brings the shown turn into view once all of the step has changed, so that layout runs once.
  // What opens above the turn moves it, and brings others near.
  #arrive() {
    this.arriving = false;
    for (let again = 0; again < AGAIN; again += 1) {
      this.#scroll(this.shown);
      if (!this.#openNear()) return;
    }
  }

  name() { this.activate(); }

  prepare(/** @type {number} */ turn) {
    const beyond = 2 * turn - this.shown; // the turn after the next step, which comes near the view
    for (const near of [turn, beyond]) if (this.turns[near] && this.#tokens(near).length <= WHOLE) this.#open(near);
  }

  activate() {
    const token = this.stage.hover ?? this.stage.state.entry;
    const [word] = (token !== null && this.words.get(token)) || [];
    if (token === null || !word) return void this.box.removeAttribute('aria-activedescendant');
    const fates = this.lanes.map((lane) => `${lane.label}: ${this.why.fate(lane, this.stage.state.turn, token).words}`);
    const value = this.dialog.valueOf.get(token);
    word.setAttribute('aria-label', [`“${word.textContent}”`, `token ${token}`, ...(value ? [`of the value “${value}”`] : []), ...fates].join(', '));
    this.box.setAttribute('aria-activedescendant', word.id);
  }
}
