// ---------------------------------------------------------------------------------- the lanes
// Several runs over one dialog: the same turn in all, and the same entry.

class Lanes extends Stage {
  listenToViews() {} // each row is listened to when it is made

  async take(bytes) {
    const run = await unpack(bytes);
    if (stage !== this) return;
    this.dialog = new Dialog(run.dialog, run.palette);
    this.lanes = run.lanes.map((head, k) => new Lane(head, run.columns.slice(3 * k, 3 * k + 3), this.dialog));
    [this.lane] = this.lanes;
    this.name = run.name;
    const why = make('aside', { className: 'panel why', 'aria-label': 'Why' });
    this.why = new WhyInAll(why, this.lanes, () => this.choose(null));
    const frame = this.part('.frame');
    frame.style.setProperty('--lanes', this.lanes.length);
    this.fill(frame, why, run);
    this.begin(run.name);
  }

  fill(frame, why) {
    this.rows = this.lanes.map((lane, k) => this.#row(lane, k));
    const paged = this.lanes.some((lane) => lane.pages.some((size) => size > 1));
    const key = make('div', { className: 'key' }, ...[
      ['is-new', 'new in this turn'], ['is-held', 'protected'], ['is-gone', 'evicted'],
      ...(paged ? [['is-page', 'a page, which leaves as a whole'], ['is-empty', 'an empty place of it']] : []),
    ]
      .map(([className, meaning]) => make('span', {}, make('i', { className }), meaning)));
    frame.className = 'frame lanes';
    frame.replaceChildren(make('div', { className: 'rows' }, ...this.rows.map(({ box }) => box), key), why);
  }

  #row(lane, k) {
    const part = (className, ...children) => make('div', { className }, ...children);
    const river = make('div', {
      className: 'plot river', role: 'img',
      'aria-label': `${lane.label}: the kept entries of ${this.dialog.turns} turns by age and topic`,
    }, make('canvas', { className: 'base' }), make('canvas', { className: 'over' }));
    const cells = make('div', {
      className: 'plot cells', role: 'listbox', tabindex: 0, 'aria-label': `Entries in ${lane.label}`,
    }, make('canvas'), part('gone-title'), make('div', { className: 'options', role: 'none' }));
    const counts = part('counts');
    const figures = make('dl', {}, ...lane.figures.map(([name]) => make('div', {}, make('dt', {}, name), make('dd'))));
    const fork = lane.forks ? part('forks', `↳ continues ${this.lanes[lane.forks[0]].label} after turn ${lane.forks[1]}`) : null;
    const note = lane.note ? part('hint', lane.note) : null;
    const box = make('section', { className: 'lane', 'aria-label': lane.label },
      part('who', make('h2', {}, lane.label), fork, counts, note, figures), river, part('now', cells));
    const row = { box, counts, figures, lane, cells: new Cells(cells, lane), river: new River(river, lane, lane.places), prefix: `lane-${k}` };
    this.listenToMarks(cells, () => row.cells.marks, 3);
    this.listenToRiver(river, () => row.river);
    this.listenToKeys(cells, () => row.cells);
    return row;
  }

  layOut() {
    if (!this.lane || !this.root.isConnected) return;
    this.root.hidden = false;
    readTheme(this.root);
    for (const { cells, river, lane } of this.rows) {
      cells.layOut();
      river.layOut();
      if (lane.forks) river.begin(lane.forks[1] + 1);
    }
    this.show(false);
  }

  show(glide = true) {
    if (!this.rows?.[0].cells.side) return;
    const { turn, order } = this.state;
    const moves = glide && !still.matches;
    for (const row of this.rows) {
      const { kept, gone } = row.lane.turn(turn);
      row.cells.show(turn, order, moves);
      const paged = row.lane.paged(turn);
      row.counts.replaceChildren(
        make('b', {}, `${kept.length} of ${row.lane.budget}`), ' kept · ', make('b', {}, `${gone.length}`), ' evicted',
        ...(paged ? [make('div', { className: 'of-pages' }, paged)] : []),
      );
      row.box.querySelector('.gone-title').textContent = gone.length ? 'Evicted in this turn' : 'Nothing evicted';
      row.lane.figures.forEach(([, said], k) => { row.figures.children[k].lastChild.textContent = said[turn]; });
    }
    this.tellTurn(this.headline(turn));
    this.point();
    clearTimeout(this.timers.named);
    this.timers.named = setTimeout(() => this.nameEntries(), NAMED);
  }

  headline(turn) {
    const topic = this.dialog.label(this.dialog.hue(turn));
    const sets = this.lanes.map((lane) => new Set(lane.turn(turn).kept.map((i) => lane.token[i])));
    const shared = [...sets[0]].filter((token) => sets.every((set) => set.has(token))).length;
    const said = `Turn ${turn}: topic ${topic || 'none'}.`;
    return sets.length > 1 ? `${said} ${shared ? many(shared, 'entry is', 'entries are') : 'No entry is'} in every cache.` : said;
  }

  paintPointed(turn, token) {
    for (const { river } of this.rows) river.paint(turn, token);
    this.why.show(turn, token, this.holds(), this.told());
  }

  paintMarks(moment) {
    return this.rows.map(({ cells }) => cells.paint(moment, this.hover, this.state.entry)).some(Boolean);
  }

  nameEntries() {
    for (const { box, cells, lane, prefix } of this.rows) this.nameOptions(box.querySelector('.options'), cells, lane, prefix);
    this.activate();
  }

  activate() {
    for (const { box, lane, prefix } of this.rows) this.activateOption(box.querySelector('.cells'), lane, prefix);
  }

  search() {} // what would have decided otherwise is asked of one run, on its own page
}

// What is changed on the page around the lanes is changed from the turn that is shown: they rest.
document.addEventListener('focusin', ({ target }) => {
  if (stage?.root.isConnected && !stage.root.contains(target)) stage.pause();
});

// ---------------------------------------------------------------------------------- why, in all lanes

// What became of an entry in a lane, up to a turn, and by which rule.
function fateOf(lane, turn, token) {
  const born = lane.dialog.born[token];
  if (born > turn) return { fate: `comes in turn ${born}`, gone: false, how: '' };
  const left = lane.left(turn, token);
  const gone = left !== null;
  const i = lane.find(left ?? turn, token);
  if (i === undefined) return { fate: 'taken out', gone: true, how: 'by the fork' };
  const { rank, stood } = lane.turn(left ?? turn);
  const place = rank.has(i) ? `rank ${rank.get(i)} of ${stood.length}` : 'below the threshold';
  const rule = gone && rank.has(i) ? 'by the budget' : lane.isProtected[i] ? 'protected' : '';
  const when = left === turn ? 'evicted in this turn' : `evicted in turn ${left}`;
  return { fate: gone ? when : 'kept', gone, how: [place, rule].filter(Boolean).join(' · ') };
}

class WhyInAll {
  constructor(box, lanes, unlock) {
    Object.assign(this, { box, lanes, unlock, dialog: lanes[0].dialog, shown: '' });
  }

  // `chosen` says whether the entry is held there, and `told` what the server says of it in each lane.
  show(turn, token, chosen, told) {
    const shown = JSON.stringify([turn, token, chosen, told, theme.ink]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.box.replaceChildren(...(token === null ? this.#turn(turn) : this.#entry(turn, token, chosen, told)));
  }

  draw() {}

  #turn(turn) {
    const { dialog, lanes } = this;
    const counts = lanes.map((lane) => {
      const count = new Map();
      for (const i of lane.turn(turn).kept) {
        const hue = dialog.hueOf(lane.token[i]);
        count.set(hue, (count.get(hue) ?? 0) + 1);
      }
      return count;
    });
    const hues = [...new Set(counts.flatMap((count) => [...count.keys()]))].sort((a, b) => a - b);
    return [
      make('h2', {}, 'Why'),
      make('p', {}, 'Point at an entry to see it in every lane, and what each policy does with it. Click to keep it here; Escape lets go.'),
      make('h3', {}, `Kept in turn ${turn}, by topic`),
      make('table', {},
        make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, 'topic'),
          ...hues.map((hue) => make('th', { scope: 'col', 'aria-label': dialog.label(hue) || 'none' }, tile(dialog, hue))))),
        make('tbody', {}, ...lanes.map((lane, k) => make('tr', {}, make('th', { scope: 'row' }, lane.label),
          ...hues.map((hue) => make('td', {}, `${counts[k].get(hue) ?? 0}`)))))),
    ];
  }

  #entry(turn, token, chosen, told) {
    const { dialog, lanes } = this;
    const word = dialog.words.length ? `“${dialog.words[token]}” · ` : '';
    const close = chosen ? make('button', { className: 'close', 'aria-label': 'Let this entry go', title: 'Let go (Escape)' }, '×') : null;
    close?.addEventListener('click', this.unlock);
    const fates = lanes.map((lane) => fateOf(lane, turn, token));
    const held = fates.filter(({ fate }) => fate === 'kept').length;
    return [
      make('header', {},
        tile(dialog, dialog.hueOf(token), 'large'),
        make('div', {},
          make('b', {}, `${word}token ${token}`),
          make('span', {}, `topic ${dialog.topicOf(token) || 'none'} · from turn ${dialog.born[token]}`)),
        make('div', { className: 'fate' }, make('b', {}, `${held} of ${lanes.length}`), make('span', {}, 'keep it')),
        close),
      ...lanes.map((lane, k) => make('section', { className: 'of-lane' },
        make('h2', {}, lane.label),
        make('div', { className: `fate ${fates[k].gone ? 'gone' : ''}` }, make('b', {}, fates[k].fate)),
        make('span', { className: 'how' }, fates[k].how),
        chosen && (!told || told.length) ? make('p', { className: 'hint' }, told?.[k] ?? '…') : null)),
      chosen ? null : make('p', { className: 'hint' }, 'Click to keep it here.'),
    ].filter(Boolean);
  }
}
