// ---------------------------------------------------------------------------------- the stage

const REPORTED = 250; // milliseconds of rest after which the server hears of the turn
const SEARCHED = 500; // and after which it looks for what would have decided otherwise
const NAMED = 120; // and after which the names of the entries are written for those who hear them

let stage = null;

class Stage {
  constructor(root) {
    this.root = root;
    this.state = { turn: 0, entry: null, order: 'age' };
    this.hover = null;
    this.asked = 0;
    this.timers = {};
    this.playing = 0;
    this.part = (name) => root.querySelector(name);
    this.#listen();
    this.listenToViews();
    new ResizeObserver(() => this.layOut()).observe(this.part('.frame'));
    // Its colour glides for a moment when the page's theme changes, and only then.
    root.addEventListener('transitionend', ({ target }) => { if (target === root) this.layOut(); });
  }

  // Takes a run; what is looked at comes from the server's view (hub.view).
  async take(bytes) {
    const run = await unpack(bytes);
    if (stage !== this) return;
    this.dialog = new Dialog(run.dialog, run.palette);
    this.lane = new Lane(run.lanes[0], run.columns, this.dialog);
    this.name = run.name;
    this.river = new River(this.part('.river'), this.lane);
    this.cells = new Cells(this.part('.cells'), this.lane);
    this.scores = new Scores(this.part('.scores'), this.lane);
    this.why = new Why(this.part('.why'), this.lane, () => this.choose(null));
    this.states = new States(this.part('.states'), this.lane);
    this.part('.river').setAttribute('aria-label', `The kept entries of ${this.dialog.turns} turns by age and topic`);
    this.begin(run.name);
  }

  // What does not change from turn to turn, and then the turn.
  begin(name) {
    const { dialog } = this;
    clearTimeout(this.timers.named); // of the run before, whose entries are gone
    const range = this.part('input');
    range.max = dialog.turns - 1;
    this.part('.scrub').style.setProperty('--turns', dialog.turns);
    this.part('.turns').replaceChildren(...dialog.current.map((hue, turn) => {
      const { fill, ink, hatched } = dialog.paint(hue);
      const cell = make('span', { className: hatched ? 'hatched' : '' }, dialog.turns <= 40 ? dialog.letter(hue) : '');
      cell.style.background = fill;
      cell.style.color = ink;
      return cell;
    }));
    this.looked();
    this.layOut();
    this.root.dataset.run = name;
  }

  // ------------------------------------------------------------------------------ showing

  layOut() {
    if (!this.lane || !this.root.isConnected) return;
    this.root.hidden = false;
    readTheme(this.root);
    for (const view of [this.river, this.states, this.cells, this.scores]) view.layOut();
    this.show(false);
  }

  // Takes over what the server shows, unless it has yet to hear of what was done here since.
  looked() {
    const { view } = hub;
    if (!view || !this.lane) return;
    if (view.session !== this.session) [this.session, this.asked] = [view.session, view.heard];
    const last = this.dialog.turns - 1;
    // It may have heard more than this knows of, from the stage that stood here before.
    if (view.heard >= this.asked) {
      this.asked = view.heard;
      const { turn, entry, order } = view;
      if (turn !== this.state.turn || this.playing) this.pause();
      this.state = { turn, entry, order };
    }
    this.state.turn = Math.min(this.state.turn, last);
    if (this.state.entry >= this.dialog.born.length) this.state.entry = null;
    this.show(false);
    this.search();
  }

  show(glide = true) {
    if (!this.cells?.side) return;
    const { turn, order } = this.state;
    const moves = glide && !still.matches;
    this.cells.show(turn, order, moves);
    this.scores.show(turn, moves);
    this.states.show(turn);
    this.#texts();
    this.point();
    clearTimeout(this.timers.named);
    this.timers.named = setTimeout(() => this.nameEntries(), NAMED);
  }

  // Everything that follows the pointer is drawn in the next frame, once.
  point() {
    this.pointed = true;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame((moment) => this.#draw(moment));
  }

  // Saves what is shown as a PNG, each view drawn anew with as many pixels as the picture has.
  savePicture() {
    resolution.picture = PICTURE_PIXELS;
    this.layOut();
    this.#draw(performance.now());
    this.why.draw();
    const title = this.lanes ? '' : this.lane.label;
    const canvas = pictureOf(title, this.part('.headline'), this.part('.frame'));
    resolution.picture = 0;
    this.layOut();
    this.why.draw();
    canvas.toBlob((blob) => {
      const link = make('a', { href: URL.createObjectURL(blob), download: `turn-${this.state.turn}.png` });
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  #draw(moment) {
    const { turn, entry } = this.state;
    if (this.pointed) {
      this.pointed = false;
      this.paintPointed(turn, this.hover ?? entry);
    }
    if (this.paintMarks(moment)) this.frame = requestAnimationFrame((now) => this.#draw(now));
  }

  paintPointed(turn, token) {
    this.river.paint(turn, token);
    this.why.show(turn, token, this.holds(), this.told(), this.#found());
  }

  // Returns whether any of them still moves.
  paintMarks(moment) {
    return [this.cells, this.scores].map((view) => view.paint(moment, this.hover, this.state.entry)).some(Boolean);
  }

  // Whether the entry that is pointed at is the one that is held.
  holds() { return this.hover === null && this.state.entry !== null; }

  #texts() {
    const { lane } = this;
    const { turn, order } = this.state;
    const now = lane.turn(turn);
    this.tellTurn(lane.headlines[turn]);
    this.part('.kept-title').textContent = `Kept ${now.kept.length} of ${lane.budget}`;
    const paged = lane.paged(turn);
    for (const part of this.root.querySelectorAll('.of-pages')) part.hidden = !paged;
    this.part('.of-pages b').textContent = paged;
    this.part('.gone-title').textContent = now.gone.length ? `Evicted in this turn ${now.gone.length}` : 'Nothing evicted';
    this.part('.decision-title').textContent = now.missed.length && now.stayed.length
      ? `highest score first${this.scores.axis.zoomed ? ' · the axis is zoomed to the cutoff and broken beyond' : ''}`
      : 'highest score first · no cutoff in this turn';
    this.part('.scores').setAttribute('aria-label', `Scores of ${now.stood.length} entries, ${now.stayed.length} kept and ${now.missed.length} evicted by score, ${now.shielded.length} protected`);
    for (const button of this.root.querySelectorAll('[data-order]')) {
      button.setAttribute('aria-checked', button.dataset.order === order);
    }
  }

  tellTurn(headline) {
    const { dialog, state: { turn } } = this;
    const range = this.part('input');
    range.value = turn;
    range.setAttribute('aria-valuetext', `${turn} of ${dialog.turns - 1}, topic ${dialog.label(dialog.hue(turn))}`);
    // Not on the whole stage: the browser would go through the style of all that is in it.
    this.part('.scrub').style.setProperty('--at', (turn + 0.5) / dialog.turns);
    this.part('.where').textContent = `${turn} of ${dialog.turns - 1}`;
    this.part('.headline').textContent = headline;
  }

  // The entries of the turn for those who hear them, and for a finger that looks for one.
  nameEntries() {
    this.nameOptions(this.part('.options'), this.cells, this.lane, 'entry');
    this.activate();
  }

  nameOptions(box, cells, lane, prefix) {
    const { turn, entry } = this.state;
    while (box.children.length < cells.order.length) box.append(make('div', { role: 'option' }));
    while (box.children.length > cells.order.length) box.lastChild.remove();
    cells.order.forEach((token, place) => {
      const option = box.children[place];
      const [x, y, width, height] = cells.marks.shown.get(token).at;
      option.id = `${prefix}-${token}`;
      option.style.cssText = `left:${x}px;top:${y}px;width:${width}px;height:${height}px`;
      option.setAttribute('aria-label', nameOf(lane, turn, token));
      option.setAttribute('aria-selected', token === entry);
    });
    box.dataset.turn = turn;
  }

  activate() {
    this.activateOption(this.part('.cells'), this.lane, 'entry');
  }

  activateOption(list, lane, prefix) {
    const token = this.hover ?? this.state.entry;
    if (token !== null && lane.find(this.state.turn, token) !== undefined) list.setAttribute('aria-activedescendant', `${prefix}-${token}`);
    else list.removeAttribute('aria-activedescendant');
  }

  // ------------------------------------------------------------------------------ doing

  go(turn, entry = this.state.entry) {
    const to = Math.min(Math.max(turn, 0), this.dialog.turns - 1);
    if (to === this.state.turn && entry === this.state.entry) return;
    this.state = { ...this.state, turn: to, entry };
    this.show();
    this.#report();
  }

  choose(entry) {
    this.hover = null;
    this.state = { ...this.state, entry };
    this.point();
    this.nameEntries();
    this.#report();
    this.search();
  }

  look(token) {
    if (token === this.hover) return;
    this.hover = token;
    this.point();
    this.activate();
  }

  play() {
    if (this.playing) {
      this.pause();
      return;
    }
    const last = this.dialog.turns - 1;
    if (this.state.turn >= last) this.go(0);
    // What the server has yet to say of where it stood would stop it.
    clearTimeout(this.timers.report);
    this.asked += 1;
    let due = performance.now();
    const tick = () => {
      if (this.state.turn >= last || !this.root.isConnected) {
        this.pause();
        return;
      }
      this.go(this.state.turn + 1);
      due += 1000 / Number(this.part('.speed').value); // from when it was due, so that none is lost
      this.playing = setTimeout(tick, Math.max(0, due - performance.now()));
    };
    due += 1000 / Number(this.part('.speed').value);
    this.playing = setTimeout(tick, due - performance.now());
    this.#playable();
  }

  pause() {
    if (!this.playing) return;
    clearTimeout(this.playing);
    this.playing = 0;
    this.#playable();
    this.#report();
  }

  #playable() {
    const button = this.part('[data-go=play]');
    button.setAttribute('aria-label', this.playing ? 'Pause' : 'Play');
    button.classList.toggle('playing', this.playing !== 0);
  }

  act(name) {
    const { turn } = this.state;
    const { changes, turns } = this.dialog;
    const to = {
      first: 0,
      back: turn - 1,
      next: turn + 1,
      last: turns - 1,
      before: changes.findLast((each) => each < turn) ?? 0,
      ahead: changes.find((each) => each > turn) ?? turns - 1,
    }[name];
    if (name === 'play') this.play();
    else if (name === 'picture') this.savePicture();
    else {
      this.pause();
      this.go(to);
    }
  }

  // ------------------------------------------------------------------------------ the server

  #report() {
    if (hub.alone) return;
    this.asked += 1;
    clearTimeout(this.timers.report);
    if (this.playing) return;
    this.timers.report = setTimeout(() => this.#tell(REPORTED * 8), REPORTED);
  }

  // A server that is busy may miss it: it is told until it has heard.
  #tell(wait) {
    const { asked, session } = this;
    if (hub.view?.heard === asked || !this.root.isConnected) return;
    hub.tell.view?.({ ...this.state, asked, session });
    this.timers.report = setTimeout(() => { if (this.asked === asked) this.#tell(2 * wait); }, wait);
  }

  told() {
    if (hub.alone) return hub.alone.told[`${this.state.turn} ${this.state.entry}`] ?? [];
    const { view } = hub;
    const { turn, entry } = this.state;
    return view && view.run === this.name && view.turn === turn && view.entry === entry ? view.sentences : null;
  }

  #question() {
    const { turn, entry } = this.state;
    if (entry === null || this.dialog.born[entry] > turn) return null;
    return { run: this.name, turn: this.lane.left(turn, entry) ?? turn, entry };
  }

  #found() {
    const { answer } = hub;
    const question = this.#question();
    const same = answer && question && ['run', 'turn', 'entry'].every((name) => answer[name] === question[name]);
    return same && answer.done ? answer : null;
  }

  // Asks what would have decided otherwise, and asks again until it is told.
  search(wait = SEARCHED) {
    clearTimeout(this.timers.search);
    if (hub.alone || !this.#question() || this.#found()) return;
    this.timers.search = setTimeout(() => {
      if (!this.root.isConnected) return;
      hub.tell.answer?.({ ...this.#question(), again: performance.now() });
      this.search(Math.min(2 * wait, 4000));
    }, wait);
  }

  heard(what) {
    if (!this.lane) return;
    if (what === 'view') this.looked();
    else this.point();
  }

  // ------------------------------------------------------------------------------ listening

  #listen() {
    const { part, root } = this;
    root.addEventListener('click', ({ target }) => {
      const button = target.closest('[data-go]');
      if (button) this.act(button.dataset.go);
      const order = target.closest('[data-order]')?.dataset.order;
      if (order) {
        this.state = { ...this.state, order };
        this.show();
        this.#report();
      }
    });
    part('input').addEventListener('input', ({ target }) => {
      this.pause();
      this.go(target.valueAsNumber);
    });
    part('.speed').value = '2';
  }

  listenToViews() {
    this.listenToMarks(this.part('.cells'), () => this.cells.marks, 3);
    this.listenToMarks(this.part('.scores'), () => this.scores.marks, 8);
    this.listenToRiver(this.part('.river'), () => this.river);
    this.listenToKeys(this.part('.cells'), () => this.cells);
  }

  listenToMarks(box, marks, reach) {
    const token = (event) => {
      const { left, top } = box.getBoundingClientRect();
      return marks().near(event.clientX - left, event.clientY - top, reach);
    };
    box.addEventListener('pointermove', (event) => { if (event.pointerType === 'mouse') this.look(token(event)); });
    box.addEventListener('pointerleave', () => this.look(null));
    box.addEventListener('click', (event) => {
      const hit = token(event);
      if (hit !== null) this.choose(hit);
    });
  }

  listenToRiver(box, river) {
    const at = (event) => {
      const { left, top } = box.getBoundingClientRect();
      return river().at(event.clientX - left, event.clientY - top);
    };
    box.addEventListener('pointermove', (event) => { if (event.pointerType === 'mouse') this.look(at(event).token); });
    box.addEventListener('pointerleave', () => this.look(null));
    box.addEventListener('click', (event) => {
      const { turn, token } = at(event);
      this.hover = null;
      this.pause();
      this.go(turn, token ?? this.state.entry);
      this.search();
    });
  }

  // A click leaves the keys with the turns: they come to the entries by Tab.
  listenToKeys(box, cells) {
    box.addEventListener('mousedown', (event) => event.preventDefault());
    box.addEventListener('keydown', (event) => {
      if (/^(Arrow|Home$|End$)/.test(event.key)) {
        this.look(cells().beside(this.hover ?? this.state.entry, event.key));
      } else if ((event.key === 'Enter' || event.key === ' ') && this.hover !== null) {
        this.choose(this.hover);
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    box.addEventListener('blur', () => this.look(null));
  }
}

const KEYS = {
  ArrowLeft: 'back', ArrowRight: 'next', Home: 'first', End: 'last', p: 'play', P: 'play', '[': 'before', ']': 'ahead',
};
const TYPES = 'input:not([type=range]), textarea, select, [contenteditable], [role=combobox], [role=tab], [role=radiogroup] input';

// Once for the window, whichever stage stands in it.
document.addEventListener('keydown', (event) => {
  if (!stage?.lane || !stage.root.isConnected || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.(TYPES)) return;
  if (event.key === 'Escape' && stage.state.entry !== null) stage.choose(null);
  const name = KEYS[event.key];
  if (!name) return;
  event.preventDefault();
  stage.act(name);
});

export default function mount({ data, parentElement }) {
  let root = parentElement.querySelector('.stage');
  if (!root) {
    parentElement.insertAdjacentHTML('beforeend', HTML);
    root = parentElement.querySelector('.stage');
  }
  if (stage?.root !== root) {
    stage = new Scene(root);
    // Each kind of stage is a module of its own: the one that is shown is told.
    hub.changed = (what) => stage.heard(what);
    hub.answer = null;
  }
  if (root.given !== data) stage.take(data);
  root.given = data;
}
