// The stage: the transport above a scene, which turn and entry it shows, and what the server receives.

import { make, one, tile } from './dom.js';
import { hub } from './hub.js';
import { Lanes } from './lanes.js';
import { cellStarts, leadsTo } from './layout/transport.js';
import { readTheme, still } from './marks.js';
import { One } from './one.js';
import { unpack } from './record.js';
import { Transcript } from './transcript.js';

const SCENES = { one: One, lanes: Lanes, transcript: Transcript };
const REPORTED = 250; // milliseconds of rest after which the server receives the turn
const RESTED = 120; // milliseconds after a step until entries are named, and its neighbours prepared

export class Stage {
  constructor(/** @type {HTMLElement & { given?: unknown }} */ root) {
    this.root = root;
    this.state = /** @type {Standing} */ ({ turn: 0, entry: null });
    this.hover = /** @type {number | null} */ (null);
    this.scene = /** @type {Scene | null} */ (null);
    this.run = /** @type {Packed | null} */ (null);
    this.session = '';
    this.actions = 0;
    this.timers = /** @type {{ [name: string]: number }} */ ({});
    this.playing = 0;
    this.frame = 0;
    this.pointed = false;
    this.ready = false; // to draw: its boxes are measured
    this.part = (/** @type {string} */ selector) => one(root, selector);
    root.addEventListener('click', (event) => {
      const target = /** @type {Element} */ (event.target);
      const name = target.closest('[data-go]')?.getAttribute('data-go');
      if (name) this.act(name);
    });
    this.part('input').addEventListener('input', () => {
      this.pause();
      this.go(this.part('input').valueAsNumber);
    });
    new ResizeObserver(() => this.layOut()).observe(this.part('.frame'));
    // The stage's colour has a transition, which ends only after the page's theme has changed.
    root.addEventListener('transitionend', ({ target }) => { if (target === root) this.layOut(); });
  }

  /** Shows a run; its turn and entry come from the server's view (hub.view).
   * @param {Uint8Array<ArrayBuffer>} bytes */
  async take(bytes) {
    const run = await unpack(bytes);
    if (this.root.given !== bytes) return; // another run has arrived meanwhile
    clearTimeout(this.timers.rested); // of the previous run, whose entries are gone
    this.ready = false;
    this.run = run;
    const frame = this.part('.frame');
    frame.className = 'frame';
    frame.removeAttribute('style');
    this.scene = new SCENES[run.kind](this, run);
    const { dialog } = this.scene;
    this.part('input').max = dialog.turns - 1;
    this.part('.scrub').style.setProperty('--turns', dialog.turns);
    const named = dialog.titles.length > 0;
    const starts = cellStarts(dialog.current, named);
    this.part('.turns').classList.toggle('unlettered', dialog.turns > 40 && !named);
    this.part('.turns').replaceChildren(...starts.map((turn, at) => {
      const hue = dialog.current[turn];
      const cell = tile(dialog, hue);
      if (named) {
        cell.title = dialog.label(hue);
        cell.replaceChildren(make('span', { 'data-letter': dialog.letter(hue) }));
      }
      cell.style.flexGrow = `${(starts[at + 1] ?? dialog.turns) - turn}`;
      return cell;
    }));
    dialog.byKind = run.kind !== 'transcript' && dialog.isOfKinds;
    this.part('.kinds').hidden = !dialog.byKind;
    this.part('.kinds').replaceChildren(...dialog.kindHues.map((hue) => make('span', {}, tile(dialog, hue), dialog.label(hue))));
    this.looked();
    this.layOut();
    this.root.dataset.run = run.name;
  }

  layOut() {
    if (!this.scene || !this.root.isConnected) return;
    this.root.hidden = false;
    readTheme(this.root);
    for (const name of this.part('.turns').querySelectorAll('span')) {
      // What has room in its cell.
      for (const text of [name.parentElement.title, name.dataset.letter, '']) {
        name.textContent = text;
        if (name.scrollWidth <= name.clientWidth) break;
      }
    }
    this.scene.layOut();
    this.ready = true;
    this.show(false);
  }

  // Takes over what the server shows, unless it has not yet received the latest action here.
  looked() {
    const { view } = hub;
    if (!view || !this.scene) return;
    if (view.session !== this.session) [this.session, this.actions] = [view.session, view.received];
    const { dialog } = this.scene;
    const before = this.#standing();
    // It may have received more actions: those of an earlier stage in this place.
    if (view.received >= this.actions) {
      this.actions = view.received;
      const { turn, entry } = view;
      if (turn !== this.state.turn || this.playing) this.pause();
      this.state = { turn, entry };
    }
    this.state.turn = Math.min(this.state.turn, dialog.turns - 1);
    if (this.state.entry !== null && this.state.entry >= dialog.born.length) this.state.entry = null;
    if (this.#standing() === before) this.point(); // only what the server says of it is new
    else this.show(false);
    this.scene.settled?.();
  }

  #standing() { return JSON.stringify([this.state.turn, this.state.entry]); }

  show(glide = true) {
    const { scene } = this;
    if (!scene || !this.ready) return;
    const { turn } = this.state;
    scene.show({ turn, glide: glide && !still.matches });
    this.#announce(scene);
    this.point();
    clearTimeout(this.timers.rested);
    this.timers.rested = setTimeout(() => { // what can wait until the step is drawn
      scene.name();
      for (const beside of [turn - 1, turn + 1].filter((other) => other >= 0 && other < scene.dialog.turns)) {
        for (const lane of scene.lanes) lane.turn(beside);
        scene.prepare?.(beside);
      }
    }, RESTED);
  }

  // Everything that follows the pointer is drawn in the next frame, once.
  point() {
    this.pointed = true;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame((moment) => this.#draw(moment));
  }

  #draw(/** @type {number} */ moment) {
    const { scene } = this;
    if (!scene || !this.ready) return;
    if (this.pointed) {
      this.pointed = false;
      scene.point(this.state.turn, this.hover ?? this.state.entry);
    }
    if (scene.paint?.(moment)) this.frame = requestAnimationFrame((now) => this.#draw(now));
  }

  // Whether the entry that is pointed at is the one that is pinned.
  holds() { return this.hover === null && this.state.entry !== null; }

  #announce(/** @type {Scene} */ { dialog }) {
    const { turn } = this.state;
    const range = this.part('input');
    range.value = turn;
    range.setAttribute('aria-valuetext', `${turn} of ${dialog.turns - 1}, topic ${dialog.label(dialog.current[turn])}`);
    // Not a CSS variable of an element around it: the browser would restyle everything inside.
    this.part('.here').style.left = `${(100 * (turn + 0.5)) / dialog.turns}%`;
    this.part('.where').textContent = `${turn} of ${dialog.turns - 1}`;
    this.part('.headline').textContent = `${this.run?.headlines[turn]}`;
  }

  /** @param {number} turn */
  go(turn, entry = this.state.entry) {
    if (!this.scene) return;
    const to = Math.min(Math.max(turn, 0), this.scene.dialog.turns - 1);
    if (to === this.state.turn && entry === this.state.entry) return;
    this.state = { ...this.state, turn: to, entry };
    this.show();
    this.#report();
  }

  choose(/** @type {number | null} */ entry) {
    this.hover = null;
    this.state = { ...this.state, entry };
    this.point();
    this.scene?.name();
    this.#report();
    this.scene?.settled?.();
  }

  look(/** @type {number | null} */ token) {
    if (token === this.hover) return;
    this.hover = token;
    this.point();
    this.scene?.activate();
  }

  play() {
    if (!this.scene) return;
    if (this.playing) return void this.pause();
    const last = this.scene.dialog.turns - 1;
    if (this.state.turn >= last) this.go(0);
    // Otherwise a late view of the previous turn from the server would stop it.
    clearTimeout(this.timers.report);
    this.actions += 1;
    const wait = () => 1000 / Number(this.part('.speed').value);
    let due = performance.now() + wait();
    const tick = () => {
      if (this.state.turn >= last || !this.root.isConnected) return void this.pause();
      this.go(this.state.turn + 1);
      due += wait(); // from when this step was due, so that delays do not add up
      this.playing = setTimeout(tick, Math.max(0, due - performance.now()));
    };
    this.playing = setTimeout(tick, wait());
    this.#playable();
  }

  pause() {
    if (!this.playing) return;
    clearTimeout(this.playing);
    this.playing = 0;
    this.#playable();
    this.#report();
  }

  #playable() { this.part('[data-go=play]').setAttribute('aria-label', this.playing ? 'Pause' : 'Play'); }

  act(/** @type {string} */ name) {
    if (!this.scene) return;
    if (name === 'play') this.play();
    else {
      this.pause();
      this.go(leadsTo(name, this.state.turn, this.scene.dialog));
    }
  }

  #report() {
    if (hub.alone) return;
    this.actions += 1;
    clearTimeout(this.timers.report);
    if (this.playing) return;
    this.timers.report = setTimeout(() => this.#send(REPORTED * 8), REPORTED);
  }

  /** Repeats the message until a busy server has received it. @param {number} wait */
  #send(wait) {
    const { actions, session } = this;
    if (hub.view?.received === actions || !this.root.isConnected) return;
    hub.tell.view?.({ ...this.state, action: actions, session });
    this.timers.report = setTimeout(() => { if (this.actions === actions) this.#send(2 * wait); }, wait);
  }

  // The server's sentences on the pinned entry; null until they arrive.
  sentences() {
    const { view } = hub;
    const { turn, entry } = this.state;
    if (hub.alone) return hub.alone.sentences[`${turn} ${entry}`] ?? [];
    return view && view.run === this.run?.name && view.turn === turn && view.entry === entry ? view.sentences : null;
  }
}
