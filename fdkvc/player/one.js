// A run that is alone on its stage: a chart in each panel, and why.

import { Cells } from './cells.js';
import { make, one } from './dom.js';
import { activateOption, listenToKeys, listenToMarks, listenToRiver, nameOptions } from './entries.js';
import { hub } from './hub.js';
import { Lines } from './lines.js';
import { GHOST } from './marks.js';
import { number } from './numbers.js';
import { Dialog, Lane } from './record.js';
import { River } from './river.js';
import { Scores } from './scores.js';
import { Why } from './why.js';

const PANELS = `<section class="panel past">
  <h2>Cache river <small>entries kept, oldest at the bottom<span class="of-before" hidden> · narrow: <b></b></span></small></h2>
  <div class="plot river" role="img"><canvas class="base"></canvas><canvas class="over"></canvas></div>
</section>
<section class="panel now">
  <h2 class="kept-title"></h2>
  <div class="plot cells" role="listbox" tabindex="0" aria-label="Entries of this turn">
    <canvas></canvas><div class="gone-title"></div><div class="options" role="none"></div>
  </div>
  <div class="key"><span><i class="is-new"></i>new in this turn</span><span><i class="is-held"></i>protected</span><span><i class="is-gone"></i>evicted</span><span class="of-before" hidden><i class="is-other"></i><b></b></span><span class="of-pages" hidden><i class="is-page"></i><b></b></span><span class="of-pages" hidden><i class="is-empty"></i>an empty slot</span></div>
</section>
<section class="panel decision">
  <h2>The decision <small class="decision-title"></small></h2>
  <div class="plot scores" role="img"><canvas></canvas></div>
</section>
<section class="panel why" aria-label="Why"></section>
<section class="panel lines">
  <h2>Over the turns <small>dotted: the topic changes<span class="of-before" hidden> · dashed: <b></b></span></small></h2>
  <div></div>
</section>`;

const SEARCHED = 500; // milliseconds of rest after which it looks for what would have decided otherwise

/** @implements {Scene} */
export class One {
  /** @param {Stage} stage @param {Packed} run */
  constructor(stage, run) {
    this.stage = stage;
    this.run = run.name;
    this.dialog = new Dialog(run.dialog, run.palette, run.topicless);
    const past = run.lanes[1]; // the previous run, if there is one, whose columns are the last
    const before = past && new Lane(past, run.columns.slice(-3), this.dialog);
    this.lane = new Lane(run.lanes[0], past ? run.columns.slice(0, -3) : run.columns, this.dialog);
    this.lanes = [this.lane];
    this.searching = 0;
    this.asks = !hub.alone && !run.shows;
    const frame = stage.part('.frame');
    frame.innerHTML = PANELS;
    this.part = (/** @type {string} */ selector) => one(frame, selector);
    const [river, cells, scores] = ['.river', '.cells', '.scores'].map(this.part);
    this.river = new River(river, this.lane, Math.max(this.lane.budget, before?.budget ?? 0), river, before);
    this.cells = new Cells(cells, this.lane, cells, run.alike ? before : undefined);
    this.scores = new Scores(scores, this.lane, run.scaled ? before : undefined, run.before);
    frame.classList.toggle('some', run.shows !== '');
    for (const panel of frame.children) panel.hidden = run.shows && !run.shows.split(' ').some((/** @type {string} */ name) => panel.matches(`.${name}`));
    const courses = past ? [{ lines: past.lines, called: run.before, dash: GHOST().dash }] : [];
    const lines = new Lines(this.part('.lines div'), [...courses, run.lanes[0]], this.dialog.changes);
    for (const [part, words, shown] of /** @type {const} */ ([['.now', `decided differently in the ${run.before}`, run.alike], ['.past', `the ${run.before}`, past], ['.lines', `the ${run.before}`, past]])) {
      this.part(`${part} .of-before`).hidden = !shown;
      this.part(`${part} .of-before b`).textContent = words;
    }
    this.charts = /** @type {Chart[]} */ ([this.river, this.cells, this.scores, lines]
      .filter((_, k) => !this.part(['.past', '.now', '.decision', '.lines'][k]).hidden));
    this.why = new Why(this.part('.why'), this.lane, run.lanes[0].origin, () => stage.choose(null));
    river.setAttribute('aria-label', `The kept entries of ${this.dialog.turns} turns by age and topic`);
    listenToMarks(stage, cells, this.cells.marks, 3);
    listenToMarks(stage, scores, this.scores.marks, 8);
    listenToRiver(stage, river, this.river);
    listenToKeys(stage, cells, (token, key) => this.cells.beside(token, key));
  }

  layOut() { for (const chart of [...this.charts, this.why]) chart.layOut(); }

  show(/** @type {Shown} */ shown) {
    const { lane } = this;
    const now = lane.turn(shown.turn);
    for (const chart of this.charts) chart.show?.(shown);
    this.part('.kept-title').textContent = `Kept ${number(now.kept.length)} of ${number(lane.budgets[shown.turn])}`;
    const paged = lane.paged(shown.turn);
    for (const part of ['.of-pages', '.of-pages ~ .of-pages']) this.part(part).hidden = !paged;
    this.part('.of-pages b').textContent = paged;
    this.part('.gone-title').textContent = now.gone.length ? `Evicted in this turn: ${number(now.gone.length)}` : 'Nothing evicted';
    this.part('.decision-title').textContent = now.missed.length && now.stayed.length
      ? `highest score first${this.scores.axis.zoomed ? ' · axis zoomed in around the cutoff' : ''}`
      : 'highest score first · no cutoff in this turn';
    this.part('.scores').setAttribute('aria-label', `Scores of ${now.stood.length} entries, ${now.stayed.length} kept and ${now.missed.length} evicted by score, ${now.shielded.length} protected`);
  }

  /** @param {number} turn @param {number | null} token */
  point(turn, token) {
    // First what changes elements: text on a canvas makes the browser bring all styles up to date.
    this.why.show(turn, token, this.stage.holds(), this.stage.sentences(), this.asks ? this.#answer() : undefined);
    for (const chart of this.charts) chart.point?.(turn, token);
  }

  paint(/** @type {number} */ moment) {
    const { hover, state: { entry } } = this.stage;
    return this.charts.map((chart) => chart.paint?.(moment, hover, entry)).some(Boolean);
  }

  name() { nameOptions(this.stage, this.part('.cells'), this.cells, 'entry'); }

  activate() { activateOption(this.stage, this.part('.cells'), this.cells, 'entry'); }

  #question() {
    const { turn, entry } = this.stage.state;
    if (entry === null || this.dialog.born[entry] > turn) return null;
    return { run: this.run, turn: this.lane.left(turn, entry) ?? turn, entry };
  }

  #answer() {
    const { answer } = hub;
    const question = this.#question();
    const same = question && answer?.run === question.run && answer.turn === question.turn && answer.entry === question.entry;
    return same && answer.done ? answer : null;
  }

  // Requests what would have decided otherwise, and repeats until the answer arrives.
  settled(wait = SEARCHED) {
    clearTimeout(this.searching);
    if (!this.asks || this.stage.scene !== this || !this.#question() || this.#answer()) return;
    this.searching = setTimeout(() => {
      if (!this.stage.root.isConnected) return;
      hub.tell.answer?.({ ...this.#question(), again: performance.now() });
      this.settled(Math.min(2 * wait, 4000));
    }, wait);
  }
}
