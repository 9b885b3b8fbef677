// @ts-check
// A run that is alone on its stage: river, states, cells, decision, and why.

import { one } from './dom.js';
import { activateOption, listenToKeys, listenToMarks, listenToRiver, nameOptions } from './entries.js';
import { hub } from './hub.js';
import { PANELS } from './markup.js';
import { Dialog, Lane } from './record.js';
import { Cells, River, Scores, States } from './views.js';
import { Why } from './why.js';

/** @import { Answer } from './hub.js' */
/** @import { Packed } from './record.js' */
/** @import { Scene, Stage } from './stage.js' */

const SEARCHED = 500; // milliseconds of rest after which it looks for what would have decided otherwise

/** @implements {Scene} */
export class One {
  /** @param {Stage} stage @param {Packed} run */
  constructor(stage, run) {
    this.stage = stage;
    this.run = run.name;
    this.dialog = new Dialog(run.dialog, run.palette, run.topicless);
    this.lane = new Lane(run.lanes[0], run.columns, this.dialog);
    this.headlines = run.headlines;
    this.title = this.lane.label;
    this.rests = false;
    this.searching = 0;
    const frame = stage.part('.frame');
    frame.innerHTML = PANELS;
    this.part = (/** @type {string} */ selector) => one(frame, selector);
    this.river = new River(this.part('.river'), this.lane, this.lane.budget);
    this.states = new States(this.part('.states'), run.lanes[0].states, this.dialog.changes);
    this.cells = new Cells(this.part('.cells'), this.lane);
    this.scores = new Scores(this.part('.scores'), this.lane);
    this.why = new Why(this.part('.why'), this.lane, run.lanes[0].origin, () => stage.choose(null));
    this.part('.river').setAttribute('aria-label', `The kept entries of ${this.dialog.turns} turns by age and topic`);
    listenToMarks(stage, this.part('.cells'), this.cells.marks, 3);
    listenToMarks(stage, this.part('.scores'), this.scores.marks, 8);
    listenToRiver(stage, this.part('.river'), this.river);
    listenToKeys(stage, this.part('.cells'), (token, key) => this.cells.beside(token, key));
  }

  layOut() {
    for (const view of [this.river, this.states, this.cells, this.scores]) view.layOut();
  }

  /** @param {number} turn @param {string} order @param {boolean} glide */
  show(turn, order, glide) {
    const { lane } = this;
    const now = lane.turn(turn);
    this.cells.show(turn, order, glide);
    const zoomed = this.scores.show(turn, glide);
    this.states.show(turn);
    this.part('.kept-title').textContent = `Kept ${now.kept.length} of ${lane.budgets[turn]}`;
    const paged = lane.paged(turn);
    for (const part of ['.of-pages', '.of-pages ~ .of-pages']) this.part(part).hidden = !paged;
    this.part('.of-pages b').textContent = paged;
    this.part('.gone-title').textContent = now.gone.length ? `Evicted in this turn ${now.gone.length}` : 'Nothing evicted';
    this.part('.decision-title').textContent = now.missed.length && now.stayed.length
      ? `highest score first${zoomed ? ' · axis zoomed in around the cutoff' : ''}`
      : 'highest score first · no cutoff in this turn';
    this.part('.scores').setAttribute('aria-label', `Scores of ${now.stood.length} entries, ${now.stayed.length} kept and ${now.missed.length} evicted by score, ${now.shielded.length} protected`);
    return this.headlines[turn];
  }

  /** @param {number} turn @param {number | null} token */
  point(turn, token) {
    // First what changes elements: text on a canvas makes the browser bring all styles up to date.
    this.why.show(turn, token, this.stage.holds(), this.stage.sentences(), this.#found());
    this.river.paint(turn, token);
  }

  /** @param {number} moment */
  paint(moment) {
    const { hover, state: { entry } } = this.stage;
    return [this.cells.paint(moment, hover, entry), this.scores.paint(moment, hover, entry)].some(Boolean);
  }

  draw() { this.why.draw(); }

  name() {
    nameOptions(this.stage, this.part('.cells'), this.cells, this.lane, 'entry');
    this.activate();
  }

  /** @param {number} turn */
  prepare(turn) { this.lane.turn(turn); }

  activate() { activateOption(this.stage, this.part('.cells'), this.lane, 'entry'); }

  #question() {
    const { turn, entry } = this.stage.state;
    if (entry === null || this.dialog.born[entry] > turn) return null;
    return { run: this.run, turn: this.lane.left(turn, entry) ?? turn, entry };
  }

  #found() {
    const { answer } = hub;
    const question = this.#question();
    const same = answer && question && answer.run === question.run && answer.turn === question.turn && answer.entry === question.entry;
    return same && answer.done ? answer : null;
  }

  /** Requests what would have decided otherwise, and repeats until the answer arrives. */
  settled(wait = SEARCHED) {
    clearTimeout(this.searching);
    if (hub.alone || this.stage.scene !== this || !this.#question() || this.#found()) return;
    this.searching = setTimeout(() => {
      if (!this.stage.root.isConnected) return;
      hub.tell.answer?.({ ...this.#question(), again: performance.now() });
      this.settled(Math.min(2 * wait, 4000));
    }, wait);
  }
}
