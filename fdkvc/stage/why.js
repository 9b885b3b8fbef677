// @ts-check
// Why an entry of a run stays or goes, in numbers: what the panel beside it shows.

import { make, tile } from './dom.js';
import { called, comparison, evictedWhen, fateOf, rankOf, rivalOf, verdict } from './explain.js';
import { hub } from './hub.js';
import { theme } from './marks.js';
import { count, number, plus } from './numbers.js';
import { EVICTED, SPANS } from './record.js';
import { drawCourse } from './views.js';

/** @import { Fate } from './explain.js' */
/** @import { Answer } from './hub.js' */
/** @import { Dialog, Lane, Part } from './record.js' */

/** The entry, its topic and turn; beside it what became of it, and whether it is pinned.
 * @param {Dialog} dialog @param {number} token @param {boolean} chosen @param {string} fate
 * @param {string} below @param {boolean} gone @param {() => void} unpin */
export function heading(dialog, token, chosen, fate, below, gone, unpin) {
  const word = dialog.words.length ? `“${dialog.words[token]}” · ` : '';
  const close = chosen ? make('button', { className: 'close', 'aria-label': 'Unpin this entry', title: 'Unpin (Esc)' }, '×') : null;
  close?.addEventListener('click', unpin);
  return make('header', {},
    tile(dialog, dialog.hueOf(token), 'large'),
    make('div', {},
      make('b', {}, `${word}token ${token}`),
      make('span', {}, [`topic ${dialog.topicOf(token) || 'none'}`, `from turn ${dialog.born[token]}`, SPANS[dialog.kindOf(token)]].filter(Boolean).join(' · '))),
    make('div', { className: `fate ${gone ? 'gone' : ''}` }, make('b', {}, fate), make('span', {}, below)),
    close);
}

export class Why {
  /** @param {HTMLElement} box @param {Lane} lane @param {() => void} unpin */
  constructor(box, lane, unpin) {
    this.box = box;
    this.lane = lane;
    this.unpin = unpin;
    this.shown = '';
    this.token = /** @type {number | null} */ (null);
    this.course = /** @type {readonly [turn: number, parts: Part[], cutoff: number | null]} */ ([0, [], null]);
  }

  /** `chosen` says whether the entry is pinned, `sentences` the server's explanation, and `found` what would have decided otherwise.
   * @param {number} turn @param {number | null} token @param {boolean} chosen
   * @param {string[] | null} sentences @param {Answer | null} found */
  show(turn, token, chosen, sentences, found) {
    const shown = JSON.stringify([turn, token, chosen, sentences, found, theme.ink, this.lane.dialog.byKind]);
    if (shown === this.shown) return;
    const scrolled = token === this.token ? this.box.scrollTop : 0;
    this.shown = shown;
    this.token = token;
    this.box.replaceChildren(...(token === null ? this.#turn(turn) : this.#entry(turn, token, chosen, sentences, found)));
    this.box.scrollTop = scrolled;
    this.draw();
  }

  draw() {
    const canvas = this.box.querySelector('canvas');
    if (canvas) drawCourse(canvas, this.lane, ...this.course);
  }

  /** Of a turn as a whole: what each topic kept and lost. @param {number} turn */
  #turn(turn) {
    const { lane } = this;
    const { dialog } = lane;
    /** @type {Map<number, { kept: number, held: number, gone: number, sum: number, known: number }>} */
    const topics = new Map();
    for (const i of lane.turn(turn).byAge) {
      const hue = dialog.hueOf(lane.token[i]);
      const row = topics.get(hue) ?? { kept: 0, held: 0, gone: 0, sum: 0, known: 0 };
      topics.set(hue, row);
      row[lane.status[i] < EVICTED ? 'kept' : 'gone'] += 1;
      row.held += lane.isProtected[i];
      if (Number.isFinite(lane.score[i])) [row.sum, row.known] = [row.sum + lane.score[i], row.known + 1];
    }
    const rows = [...topics].sort(([a], [b]) => a - b).map(([hue, row]) => make('tr', {},
      make('th', { scope: 'row' }, tile(dialog, hue), ` ${dialog.label(hue)}`),
      ...[row.kept, row.held, row.gone, number(row.sum / row.known)].map((each) => make('td', {}, `${each}`))));
    return [
      make('h2', {}, 'Why'),
      make('p', {}, 'Point at an entry in the cells, the river or the scores to see why it is kept or evicted. Click to pin, Esc to unpin.'),
      make('h3', {}, `Turn ${turn} by ${dialog.byKind ? 'kind of span' : 'topic'}`),
      make('table', {},
        make('thead', {}, make('tr', {}, ...[dialog.byKind ? 'kind' : 'topic', 'kept', 'protected', 'evicted', 'mean score']
          .map((name) => make('th', { scope: 'col' }, name)))),
        make('tbody', {}, ...rows)),
    ];
  }

  /** @param {number} turn @param {number} token @param {boolean} chosen
   * @param {string[] | null} sentences @param {Answer | null} found */
  #entry(turn, token, chosen, sentences, found) {
    const { lane } = this;
    const fate = fateOf(lane, turn, token);
    const gone = fate.left !== null;
    const here = fate.i !== undefined;
    const what = gone ? evictedWhen(fate, turn) : !here ? 'not in the dialog yet' : fate.isProtected ? 'kept: protected' : 'kept';
    const below = here ? rankOf(fate) : `arrives in turn ${lane.dialog.born[token]}`;
    const parts = [heading(lane.dialog, token, chosen, what, below, gone, this.unpin)];
    if (here) {
      const rival = rivalOf(lane, fate);
      parts.push(make('p', { className: 'verdict' }, verdict(lane, fate)));
      if (rival !== undefined) parts.push(this.#comparison(fate, rival));
      if (chosen && !hub.alone) parts.push(make('section', { className: 'search' }, ...this.#search(gone, found)));
      parts.push(...this.#origin(fate, token, rival));
    }
    if (!chosen) parts.push(make('p', { className: 'hint' }, `Click to pin it${hub.alone ? '' : ', and to see what would have decided otherwise'}.`));
    else if (!sentences || sentences.length) parts.push(this.#words(sentences));
    return parts;
  }

  /** @param {Fate} fate @param {number} rival */
  #comparison(fate, rival) {
    const names = ['this entry', fate.rule ? 'last kept' : 'first evicted', 'difference'];
    const rows = comparison(this.lane, fate, rival);
    return make('table', { className: 'comparison' },
      make('thead', {}, make('tr', {}, make('td'), ...names.map((name) => make('th', { scope: 'col' }, name)))),
      make('tbody', {}, ...rows.map(({ name, own, other, apart }, place) => make('tr', { className: place ? '' : 'sum' },
        make('th', { scope: 'row' }, ...(place ? [this.#swatch(place - 1), name] : [name])),
        ...[own, other, apart].map((text) => make('td', {}, text))))));
  }

  /** @param {number} k */
  #swatch(k) {
    const element = make('i', { className: 'swatch' });
    element.style.background = theme.terms[k % theme.terms.length];
    return element;
  }

  /** The waterfall, and its sums: by part, and of what was gained, by the topic that was on.
   * @param {Fate} fate @param {number} token @param {number | undefined} rival */
  #origin(fate, token, rival) {
    const { lane } = this;
    if (fate.rule === 'threshold') return [];
    const parts = lane.course(fate.at, token);
    const remembers = lane.terms.some((term) => term.remembers);
    this.course = /** @type {const} */ ([fate.at, parts, lane.turn(fate.at).cutoff]);
    /** @type {HTMLElement[]} */
    const from = [make('h3', {}, 'Where its score came from')];
    if (!remembers) {
      from.push(make('p', { className: 'hint' }, `${lane.label} keeps no state between turns: it computes each score from scratch.`));
      if (lane.terms.length === 1) return from;
    }
    from.push(make('canvas', { className: 'course', role: 'img', 'aria-label': 'What raised and lowered the score, turn by turn; the totals are below' }));
    if (!remembers) return from;
    from.push(this.#sums(parts));
    if (rival !== undefined) {
      const turns = (/** @type {Part[]} */ course) => new Set(course.map((part) => part.turn)).size;
      const nothing = parts.every(({ value }) => value >= 0) ? ' and lost none of it' : '';
      const measure = fate.rule ? 'the last kept' : 'the first evicted';
      from.push(make('p', { className: 'hint' },
        `It built up its score over ${count(turns(parts), 'turn')}${nothing}; ${called(lane, rival)}, ${measure}, over ${turns(lane.course(fate.at, lane.token[rival]))}.`));
    }
    return from;
  }

  /** A line for each part; of what an entry gained, how much while which topic was on.
   * @param {Part[]} parts */
  #sums(parts) {
    const { dialog } = this.lane;
    const signed = (/** @type {number} */ x) => plus(number(x));
    /** @type {Map<string, Part & { topics: Map<number, number> }>} */
    const sums = new Map();
    for (const part of parts) {
      const key = `${part.term} ${part.name}`;
      const sum = sums.get(key) ?? { ...part, value: 0, topics: new Map() };
      sums.set(key, sum);
      const hue = dialog.hue(part.turn);
      sum.value += part.value;
      sum.topics.set(hue, (sum.topics.get(hue) ?? 0) + part.value);
    }
    const list = make('ul', { className: 'sums' });
    for (const { term, name, value, own, turn, topics } of [...sums.values()].sort((a, b) => a.term - b.term)) {
      if (value === 0) continue;
      const begins = name === 'Start';
      list.append(make('li', {},
        this.#swatch(term), make('span', {}, begins ? `Start, in turn ${turn}` : name), make('b', {}, signed(value))));
      if (own && !begins) {
        const ordered = [...topics].sort(([one], [other]) => one - other);
        list.append(make('li', { className: 'topics' }, ...ordered.map(([hue, sum]) => {
          const when = `while the topic was ${dialog.label(hue)}`;
          return make('span', { title: when }, tile(dialog, hue), signed(sum), make('span', { className: 'sr-only' }, ` ${when}`));
        })));
      }
    }
    return list;
  }

  /** @param {boolean} gone @param {Answer | null} found */
  #search(gone, found) {
    const heading = make('h3', {}, gone ? 'What would have kept it?' : 'What would have evicted it?');
    if (!found) return [heading, make('p', { className: 'hint busy' }, 'Running the dialog again with one setting changed at a time …')];
    if (found.words) return [heading, make('p', { className: 'hint' }, found.words)];
    const rows = found.changes.filter((change) => change.after).slice(0, 3);
    const list = make('ul', { className: 'changes' }, ...rows.map(({ label, before, after, share }) => make('li', {},
      make('span', {}, label), make('b', {}, `${before} → ${after}`), make('small', {}, share))));
    const all = make('details', {}, make('summary', {}, 'All settings and the values tried'),
      make('p', { className: 'hint' }, 'One setting at a time, the nearest value first. Values between two steps were not tried.'),
      make('ul', {}, ...found.changes.map(({ words }) => make('li', {}, words))));
    return [
      heading,
      rows.length ? list : make('p', {}, `No tried value of any single setting would have ${gone ? 'kept' : 'evicted'} it.`),
      make('p', { className: 'hint' }, `${rows.length ? 'Each of these alone is enough; shares are of the setting’s range. ' : ''}${found.changes.every(({ exhaustive }) => exhaustive) ? '' : 'Not every value was tried.'}`),
      all,
    ];
  }

  /** @param {string[] | null} sentences */
  #words(sentences) {
    return make('div', { className: 'in-words' }, make('h3', {}, 'In words'),
      ...(sentences ?? ['…']).map((sentence) => make('p', {}, sentence)));
  }
}
