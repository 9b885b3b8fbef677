// ---------------------------------------------------------------------------------- why

function make(tag, options = {}, ...children) {
  const { className, ...rest } = options;
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const [name, value] of Object.entries(rest)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function tile(dialog, hue, extra = '') {
  const { fill, ink } = dialog.paint(hue);
  const element = make('i', { className: `tile ${extra}`, 'aria-hidden': 'true' }, dialog.letter(hue));
  element.style.background = fill;
  element.style.color = ink;
  return element;
}

const plus = (text) => (Number(text) > 0 ? `+${text}` : text.replace('-', '−'));
const signed = (x, digits) => plus(written(x, digits));
const many = (n, noun, plural = `${noun}s`) => `${n} ${n === 1 ? noun : plural}`;

class Why {
  constructor(box, lane, unlock) {
    Object.assign(this, { box, lane, unlock });
    this.shown = '';
  }

  // `chosen` says whether the entry is held there, and what the server has told of it.
  show(turn, token, chosen, told, found) {
    const shown = JSON.stringify([turn, token, chosen, told, found, theme.ink]);
    if (shown === this.shown) return;
    const scrolled = token === this.token ? this.box.scrollTop : 0;
    this.shown = shown;
    this.token = token;
    this.box.replaceChildren(...(token === null ? this.#turn(turn) : this.#entry(turn, token, chosen, told, found)));
    this.box.scrollTop = scrolled;
    this.draw();
  }

  draw() {
    const canvas = this.box.querySelector('canvas');
    if (canvas) drawCourse(canvas, this.lane, ...this.course);
  }

  // Of a turn as a whole: what each topic kept and lost.
  #turn(turn) {
    const { lane } = this;
    const { dialog } = lane;
    const now = lane.turn(turn);
    const topics = new Map();
    for (const i of now.byAge) {
      const hue = dialog.hueOf(lane.token[i]);
      const row = topics.get(hue) ?? { kept: 0, held: 0, gone: 0, sum: 0, known: 0 };
      topics.set(hue, row);
      row[lane.status[i] < EVICTED ? 'kept' : 'gone'] += 1;
      row.held += lane.isProtected[i];
      if (Number.isFinite(lane.score[i])) [row.sum, row.known] = [row.sum + lane.score[i], row.known + 1];
    }
    const rows = [...topics].sort(([a], [b]) => a - b).map(([hue, row]) => make('tr', {},
      make('th', { scope: 'row' }, tile(dialog, hue), ` ${dialog.label(hue)}`),
      ...[row.kept, row.held, row.gone, written(row.sum / row.known)].map((each) => make('td', {}, `${each}`))));
    return [
      make('h2', {}, 'Why'),
      make('p', {}, 'Point at an entry, in the cells, the river or the scores, to see why it stays or goes. Click to keep it here; Escape lets go.'),
      make('h3', {}, `Turn ${turn} by topic`),
      make('table', {},
        make('thead', {}, make('tr', {}, ...['topic', 'kept', 'of these protected', 'evicted', 'mean score']
          .map((name) => make('th', { scope: 'col' }, name)))),
        make('tbody', {}, ...rows)),
    ];
  }

  #entry(turn, token, chosen, told, found) {
    const { lane } = this;
    const { dialog } = lane;
    const left = lane.left(turn, token);
    const at = left ?? turn; // of what has gone, the turn that decided
    const i = lane.find(at, token);
    const parts = [this.#head(turn, token, chosen, i, left)];
    if (i !== undefined) {
      const rival = this.#rival(at, i);
      parts.push(...this.#comparison(at, i, rival));
      if (chosen && !hub.alone) parts.push(make('section', { className: 'search' }, ...this.#search(left !== null, found)));
      parts.push(...this.#origin(at, token, rival, i));
    }
    if (!chosen) parts.push(make('p', { className: 'hint' }, `Click to keep it here${hub.alone ? '' : ', and to see what would have decided otherwise'}.`));
    else if (!told || told.length) parts.push(this.#words(told));
    return parts;
  }

  #head(turn, token, chosen, i, left) {
    const { lane } = this;
    const { dialog } = lane;
    const hue = dialog.hueOf(token);
    const born = dialog.born[token];
    const word = dialog.words.length ? `“${dialog.words[token]}” · ` : '';
    const close = chosen ? make('button', { className: 'close', 'aria-label': 'Let this entry go', title: 'Let go (Escape)' }, '×') : null;
    close?.addEventListener('click', this.unlock);
    const gone = left !== null;
    let fate = 'not yet there';
    if (gone) fate = left === turn ? 'evicted in this turn' : `evicted in turn ${left}`;
    else if (i !== undefined) fate = lane.isProtected[i] ? 'kept: protected' : 'kept';
    const now = i === undefined ? null : lane.turn(gone ? left : turn);
    const rank = now?.rank.get(i);
    return make('header', {},
      tile(dialog, hue, 'large'),
      make('div', {},
        make('b', {}, `${word}token ${token}`),
        make('span', {}, `topic ${dialog.topicOf(token) || 'none'} · from turn ${born}`)),
      make('div', { className: `fate ${gone ? 'gone' : ''}` },
        make('b', {}, fate),
        make('span', {}, rank ? `rank ${rank} of ${now.stood.length}` : i === undefined ? `comes in turn ${born}` : 'below the threshold')),
      close);
  }

  // Whom an entry is measured by: what was evicted, by the last to stay; what stayed, by the first evicted.
  #rival(at, i) {
    const now = this.lane.turn(at);
    if (this.lane.rule[i] === BY_THRESHOLD) return undefined;
    return this.lane.rule[i] === BY_BUDGET ? now.stayed.at(-1) : now.missed[0];
  }

  #comparison(at, i, rival) {
    const { lane } = this;
    const gone = lane.status[i] >= EVICTED;
    if (lane.rule[i] === BY_THRESHOLD) return [make('p', { className: 'verdict' }, 'The threshold evicted it before the budget was asked.')];
    const { kept, gone: lost, cutoff } = lane.turn(at);
    if (!lost.length) return [make('p', { className: 'verdict' }, `Nothing was evicted: ${many(kept.length, 'place')} of ${lane.budget} are taken.`)];
    if (rival === undefined) {
      return [make('p', { className: 'verdict' }, cutoff === null || gone
        ? 'Every place went to a protected entry, so scores did not count.' : 'Nothing with a score was evicted.')];
    }
    const [own, other] = [lane.score[i], lane.score[rival]];
    const apart = gap(own, other).replace('-', '');
    const them = this.#called(rival);
    let verdict = `${apart} above the first evicted, ${them}.`;
    if (lane.isProtected[i]) verdict = own < other ? `Protected: by score alone it would have gone before ${them}.` : `Protected, and ${apart} above the first evicted, ${them}.`;
    else if (own === other) verdict = gone ? `Level with the last to stay, ${them}: a tie goes to the older.` : `Level with the first evicted, ${them}: a tie goes to the older.`;
    else if (gone) verdict = `${apart} short of the last to stay, ${them}.`;
    const rows = [['score', own, other], ...(lane.terms.length > 1
      ? lane.terms.map((term, k) => [term.name, lane.values[k][i], lane.values[k][rival]]) : [])];
    const all = digitsFor(...rows.flatMap(([, a, b]) => [a, b]));
    return [
      make('p', { className: 'verdict' }, verdict),
      make('table', {},
        make('thead', {}, make('tr', {}, make('td'),
          ...['this entry', gone ? 'last to stay' : 'first evicted', 'apart'].map((name) => make('th', { scope: 'col' }, name)))),
        make('tbody', {}, ...rows.map(([name, a, b], place) => make('tr', { className: place ? '' : 'sum' },
          make('th', { scope: 'row' }, ...(place ? [this.#swatch(place - 1), name] : [name])),
          make('td', {}, written(a, all)), make('td', {}, written(b, all)), make('td', {}, plus(gap(a, b, all))))))),
    ];
  }

  #called(i) {
    const token = this.lane.token[i];
    const topic = this.lane.dialog.topicOf(token);
    return `token ${token}${topic ? ` of ${topic}` : ''}`;
  }

  #swatch(k) {
    const element = make('i', { className: 'swatch' });
    element.style.background = theme.terms[k % theme.terms.length];
    return element;
  }

  // The waterfall, and its sums: by part, and of what was gained, by the topic that was on.
  #origin(at, token, rival, i) {
    const { lane } = this;
    if (lane.rule[i] === BY_THRESHOLD) return [];
    const parts = lane.course(at, token);
    const remembers = lane.terms.some((term) => term.remembers);
    this.course = [at, parts, lane.turn(at).cutoff];
    const from = [make('h3', {}, 'Where its score came from')];
    if (!remembers) {
      from.push(make('p', { className: 'hint' }, `${lane.label} remembers nothing of the turns before: it makes the score anew in each.`));
      if (lane.terms.length === 1) return from;
    }
    from.push(make('canvas', { className: 'course', role: 'img', 'aria-label': 'Turn by turn, what raised and lowered the score; the sums stand below' }));
    if (!remembers) return from;
    from.push(this.#sums(parts));
    const other = rival === undefined ? null : lane.course(at, lane.token[rival]);
    if (other) {
      const turns = (course) => new Set(course.map((part) => part.turn)).size;
      from.push(make('p', { className: 'hint' },
        `It gathered for ${many(turns(parts), 'turn')}${parts.every(({ value }) => value >= 0) ? ', and nothing was taken away' : ''}; ${this.#called(rival)}, ${lane.status[i] >= EVICTED ? 'the last to stay' : 'the first evicted'}, for ${turns(other)}.`));
    }
    return from;
  }

  // A line for each part; of what an entry gained, how much while which topic was on.
  #sums(parts) {
    const { dialog } = this.lane;
    const sums = new Map();
    for (const part of parts) {
      const key = `${part.term} ${part.name}`;
      if (!sums.has(key)) sums.set(key, { ...part, value: 0, topics: new Map() });
      const sum = sums.get(key);
      const hue = dialog.hue(part.turn);
      sum.value += part.value;
      sum.topics.set(hue, (sum.topics.get(hue) ?? 0) + part.value);
    }
    const list = make('ul', { className: 'sums' });
    for (const { term, name, value, own, turn, topics } of [...sums.values()].sort((a, b) => a.term - b.term)) {
      if (value === 0) continue;
      const begins = name === 'Start';
      list.append(make('li', {},
        this.#swatch(term), make('span', {}, begins ? `Start, in turn ${turn}` : name), make('b', {}, signed(value, 3))));
      if (own && !begins) {
        const ordered = [...topics].sort(([one], [other]) => one - other);
        list.append(make('li', { className: 'topics' }, ...ordered.map(([hue, sum]) => {
          const when = `while ${dialog.label(hue)} was on`;
          return make('span', { title: when }, tile(dialog, hue), signed(sum, 3), make('span', { className: 'heard' }, ` ${when}`));
        })));
      }
    }
    return list;
  }

  #search(gone, found) {
    const heading = make('h3', {}, gone ? 'What would have kept it?' : 'What would have evicted it?');
    if (!found) return [heading, make('p', { className: 'hint busy' }, 'Running the dialog again with one setting changed at a time …')];
    if (found.words) return [heading, make('p', { className: 'hint' }, found.words)];
    const rows = found.changes.filter((change) => change.after).slice(0, 3);
    const list = make('ul', { className: 'changes' }, ...rows.map(({ label, before, after, share }) => make('li', {},
      make('span', {}, label), make('b', {}, `${before} → ${after}`), make('small', {}, share))));
    const all = make('details', {}, make('summary', {}, 'Every setting, and what was tried'),
      make('p', { className: 'hint' }, 'One setting at a time, the nearest value first. What lies between two steps was not tried.'),
      make('ul', {}, ...found.changes.map(({ words: said }) => make('li', {}, said))));
    return [
      heading,
      rows.length ? list : make('p', {}, `No value that was tried of any single setting would have ${gone ? 'kept' : 'evicted'} it.`),
      make('p', { className: 'hint' }, `Any one of these, alone; the share is of the setting’s range. ${found.changes.every(({ exhaustive }) => exhaustive) ? '' : 'Not every value was tried.'}`),
      all,
    ];
  }

  #words(told) {
    return make('div', { className: 'in-words' }, make('h3', {}, 'In words'),
      ...(told ?? ['…']).map((sentence) => make('p', {}, sentence)));
  }
}
