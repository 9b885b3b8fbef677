// ---------------------------------------------------------------------------------- the transcript
// What was said, and under each word a line for every lane that holds it. Whatever stands in a file
// becomes text, never markup.

class Reader extends Lanes {
  fill(frame, why, { said }) {
    this.said = said;
    this.needed = new Set(said.needed);
    this.words = new Map();
    this.marked = new Map();
    this.turns = said.turns.map((pieces, turn) => this.#turn(pieces, turn));
    this.figures = this.lanes.map(() => make('small'));
    const who = this.lanes.map((lane, k) => make('li', {}, make('em', { className: `word k${k}` }, '\u2003'), make('b', {}, lane.label), this.figures[k]));
    this.box = make('div', { className: 'said-words', role: 'listbox', tabindex: 0, 'aria-label': 'Transcript' }, ...this.turns.map(({ row }) => row));
    frame.className = 'frame reading';
    this.part('[data-go=picture]').hidden = true; // its marks are the page's own, which draws no picture
    frame.replaceChildren(
      make('section', { className: 'panel text' }, make('ul', { className: 'who' }, ...who), this.box, this.#key()),
      why,
    );
    this.listenToWords();
    this.listenToKeys(this.box, () => this);
  }

  #turn(pieces, turn) {
    const topic = this.dialog.hue(turn) < 0 ? null : tile(this.dialog, this.dialog.hue(turn));
    const speaker = this.said.speakers[turn];
    const words = make('div', { role: 'none' }, ...pieces.map(([text, token]) => (token < 0 ? text : this.#word(text, token))));
    const head = make('div', { className: 'speaker', role: 'none', title: 'To this turn', 'data-turn': turn }, make('small', {}, `${turn}`), topic, make('b', {}, speaker));
    const asks = this.said.asked.filter((each) => each.turn === turn).map((each) => this.#asks(each));
    return { row: make('div', { className: 'turn', role: 'group', 'aria-label': `turn ${turn}, ${speaker}` }, head, words, ...asks), asks };
  }

  #word(text, token) {
    const word = make('span', { role: 'option', id: `word-${token}`, 'data-token': token }, text);
    // A token may stand in two pieces: what is told of it is told of its first.
    this.words.set(token, [...(this.words.get(token) ?? []), word]);
    if (this.words.get(token).length > 1) word.removeAttribute('id');
    return word;
  }

  // What a turn needed, and who held it. It is a figure of the page, and no word of the transcript.
  #asks({ source, values }) {
    const chips = values.map(([what, lost, token]) => {
      const held = this.lanes.filter((_, k) => !lost[k]).map(({ label }) => label);
      const gone = this.lanes.flatMap(({ label }, k) => (lost[k] ? [`${label} ${lost[k]}`] : []));
      const all = held.length === this.lanes.length && held.length > 1 ? ['all'] : held;
      const told = [held.length ? `✓ ${all.join(', ')}` : '', gone.length ? `✗ ${gone.join(', ')}` : ''].filter(Boolean);
      const look = { className: gone.length ? 'unmet' : 'met', title: 'Where it was said last, and why it stayed or went', 'data-token': token };
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

  layOut() {
    if (!this.words || !this.root.isConnected) return;
    this.root.hidden = false;
    readTheme(this.root);
    this.show();
  }

  show() {
    if (!this.words) return;
    const { turn } = this.state;
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
      figure.textContent = `${turns[k].kept.length} kept${asked.length ? ` · ${met} of ${asked.length} needed held` : ''}`;
    });
    this.#scroll();
    this.box.dataset.turn = turn;
    this.tellTurn(this.headline(turn));
    this.ringed = [];
    this.point();
    this.activate();
  }

  #marks(token, turns) {
    let marks = '';
    turns.forEach(({ at }, k) => {
      const i = at.get(token);
      if (i !== undefined) marks += this.lanes[k].status[i] < EVICTED ? ` k${k}` : ` g${k}`;
    });
    return marks;
  }

  // The turn is in sight, with what came right before it.
  #scroll() {
    const { row } = this.turns[this.state.turn];
    const { box } = this;
    if (row.offsetTop < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = row.offsetTop - Math.max(0, box.clientHeight - row.offsetHeight) * 0.6;
    }
  }

  paintPointed(turn, token) {
    for (const piece of this.ringed) piece.classList.remove('pointed', 'picked');
    const { entry } = this.state;
    this.ringed = [entry, this.hover].flatMap((each) => this.words.get(each) ?? []);
    for (const piece of this.ringed) piece.classList.add(Number(piece.dataset.token) === entry ? 'picked' : 'pointed');
    this.why.show(turn, token, this.holds(), this.told());
  }

  paintMarks() { return false; }

  nameEntries() { this.activate(); }

  activate() {
    const token = this.hover ?? this.state.entry;
    const [word] = this.words.get(token) ?? [];
    if (!word) {
      this.box.removeAttribute('aria-activedescendant');
      return;
    }
    const fates = this.lanes.map((lane) => `${lane.label}: ${fateOf(lane, this.state.turn, token).fate}`);
    word.setAttribute('aria-label', [`“${word.textContent}”`, `token ${token}`, ...fates].join(', '));
    this.box.setAttribute('aria-activedescendant', word.id);
  }

  // ------------------------------------------------------------------------------ doing

  // The word that a key leads to: along the words, or to where the turn before or after begins.
  beside(token, key) {
    const last = this.dialog.born.length - 1;
    const { bounds, born } = this.dialog;
    const from = token ?? bounds[this.state.turn];
    const to = {
      ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last,
      ArrowUp: bounds[Math.max(0, born[from] - 1)], ArrowDown: bounds[born[from] + 1],
    }[key];
    return token === null && key.startsWith('Arrow') ? from : Math.min(Math.max(to, 0), last);
  }

  listenToWords() {
    const token = ({ target }) => {
      const word = target.closest('[data-token]');
      return word === null ? null : Number(word.dataset.token);
    };
    this.box.addEventListener('pointermove', (event) => { if (event.pointerType === 'mouse') this.look(token(event)); });
    this.box.addEventListener('pointerleave', () => this.look(null));
    this.box.addEventListener('click', (event) => {
      const turn = event.target.closest('[data-turn]')?.dataset.turn;
      const hit = token(event);
      if (hit !== null) this.choose(hit);
      else if (turn !== undefined) {
        this.pause();
        this.go(Number(turn));
      }
    });
  }
}
