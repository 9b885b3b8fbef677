// Why an entry of a run stays or goes: its numbers at once, and the server's sentences once it is pinned.

import { drawCourse } from './course.js';
import { make, tile } from './dom.js';
import { comparison, fateOf, fateOfValue, fateWords, rivalOf } from './fate.js';
import { theme } from './marks.js';
import { number, signed } from './numbers.js';
import { EVICTED, SPANS } from './record.js';

/** The entry, or the `value` that it is a piece of; beside it what became of it, and whether it is pinned.
 * @param {Dialog} dialog @param {number} token @param {string | undefined} value @param {boolean} chosen
 * @param {{ words: string, below: string, gone?: boolean }} fate @param {() => void} unpin */
export function heading(dialog, token, value, chosen, { words, below, gone }, unpin) {
  const word = dialog.words.length ? `“${dialog.words[token]}” · ` : '';
  const close = chosen ? make('button', { className: 'close', 'aria-label': 'Unpin this entry', title: 'Unpin (Esc)' }, '×') : null;
  close?.addEventListener('click', unpin);
  const origin = [value && `${word}token ${token}`, `topic ${dialog.topicOf(token) || 'none'}`, `from turn ${dialog.born[token]}`, SPANS[dialog.kindOf(token)]];
  return make('header', {},
    tile(dialog, dialog.hueOf(token), 'large'),
    make('div', {}, make('b', {}, value ? `“${value}” · value` : `${word}token ${token}`), make('span', {}, origin.filter(Boolean).join(' · '))),
    make('div', { className: `fate ${gone ? 'gone' : ''}` }, make('b', {}, words), make('span', {}, below)),
    close);
}

/** A table of texts, the first of each row its name. @param {Node[]} head @param {HTMLElement[]} rows */
export const table = (head, rows, className = '') => make('table', { className },
  make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...rows));

/** @param {(Node | string)[]} content */
export const column = (...content) => make('th', { scope: 'col' }, ...content);

/** @param {(Node | string)[]} name @param {(string | number)[]} values */
const row = (name, values, className = '') => make('tr', { className },
  make('th', { scope: 'row' }, ...name), ...values.map((value) => make('td', {}, `${value}`)));

function swatch(/** @type {number} */ k) {
  const element = make('i', { className: 'swatch' });
  element.style.background = theme.terms[k % theme.terms.length];
  return element;
}

/** Turns that a score was built up over. @param {Part[]} parts */
function turnsOf(parts) {
  const turns = new Set(parts.map((part) => part.turn)).size;
  return turns === 1 ? '1 turn' : `${turns} turns`;
}

export class Why {
  /** @param {HTMLElement} box @param {Lane} lane @param {string} origin says that no score has a history
   * @param {() => void} unpin */
  constructor(box, lane, origin, unpin) {
    this.box = box;
    this.lane = lane;
    this.origin = origin;
    this.unpin = unpin;
    this.shown = '';
    this.token = /** @type {number | null} */ (null);
    this.course = /** @type {readonly [turn: number, parts: Part[]]} */ ([0, []]);
  }

  /** `chosen` says whether the entry is pinned, `sentences` why, and `answer` what would have decided otherwise, undefined where nobody asks.
   * @param {number} turn @param {number | null} token @param {boolean} chosen
   * @param {string[] | null} sentences @param {Answer | null | undefined} answer */
  show(turn, token, chosen, sentences, answer) {
    const shown = JSON.stringify([turn, token, chosen, sentences, answer, theme.ink, this.lane.dialog.byKind]);
    if (shown === this.shown) return;
    const scrolled = token === this.token ? this.box.scrollTop : 0;
    this.shown = shown;
    this.token = token;
    this.box.replaceChildren(...(token === null ? this.#turn(turn) : this.#entry(turn, token, chosen, sentences, answer)));
    this.box.scrollTop = scrolled;
    this.layOut();
  }

  layOut() {
    const canvas = this.box.querySelector('canvas');
    if (canvas) drawCourse(canvas, this.lane, ...this.course);
  }

  /** Of a turn as a whole: what each topic kept and lost. @param {number} turn */
  #turn(turn) {
    const { lane } = this;
    const { dialog } = lane;
    /** @type {Map<number, { kept: number, held: number, gone: number, sum: number, scored: number }>} */
    const topics = new Map();
    for (const i of lane.turn(turn).byAge) {
      const hue = dialog.hueOf(lane.token[i]);
      const sums = topics.get(hue) ?? { kept: 0, held: 0, gone: 0, sum: 0, scored: 0 };
      topics.set(hue, sums);
      sums[lane.status[i] < EVICTED ? 'kept' : 'gone'] += 1;
      sums.held += lane.isProtected[i];
      if (Number.isFinite(lane.score[i])) [sums.sum, sums.scored] = [sums.sum + lane.score[i], sums.scored + 1];
    }
    const rows = [...topics].sort(([a], [b]) => a - b).map(([hue, { kept, held, gone, sum, scored }]) => row(
      [tile(dialog, hue), ` ${dialog.label(hue)}`], [kept, held, gone, number(sum / scored)],
    ));
    const names = [dialog.byKind ? 'speaker' : 'topic', 'kept', 'protected', 'evicted', 'mean score'];
    return [
      make('h2', {}, 'Why'),
      make('p', {}, 'Point at an entry in the cells, the river or the scores to see its numbers. Click to pin it and read why, Esc to unpin.'),
      make('h3', {}, `Turn ${turn} by ${dialog.byKind ? 'speaker' : 'topic'}`),
      table(names.map((name) => column(name)), rows),
    ];
  }

  /** @param {number} turn @param {number} token @param {boolean} chosen
   * @param {string[] | null} sentences @param {Answer | null | undefined} answer */
  #entry(turn, token, chosen, sentences, answer) {
    const { lane } = this;
    const fate = fateOf(lane, turn, token);
    const here = fate.i !== undefined;
    const parts = [heading(lane.dialog, token, undefined, chosen, fateWords(lane, turn, token), this.unpin)];
    const value = fateOfValue(lane, turn, token);
    if (value) parts.push(make('p', { className: 'hint' }, `value “${lane.dialog.valueOf.get(token)}”: ${value.words}, ${value.below}`));
    const scored = here && fate.rule !== 'threshold';
    const course = scored ? lane.course(fate.at, token) : [];
    if (scored) parts.push(this.#numbers(fate, course));
    if (!chosen) parts.push(make('p', { className: 'hint' }, 'Click to pin it and read why.'));
    else if (!sentences || sentences.length) {
      parts.push(make('p', { className: 'in-words' }, sentences?.join(' ') ?? '…'));
    }
    if (here && chosen && answer !== undefined) parts.push(make('section', { className: 'search' }, ...this.#search(fate.left !== null, answer)));
    if (scored) parts.push(...this.#history(fate.at, course));
    return parts;
  }

  /** Its score and terms, beside those of the entry that it is measured by. @param {Fate} fate @param {Part[]} course */
  #numbers(fate, course) {
    const { lane } = this;
    const rival = rivalOf(lane, fate);
    const pair = rival !== undefined;
    const rows = comparison(lane, fate, rival).map(({ name, entry, rival: other, margin }, k) => row(
      k ? [swatch(k - 1), name] : [name], pair ? [entry, other, margin] : [entry], k ? '' : 'sum',
    ));
    const head = [make('td'), column('this entry')];
    if (pair) {
      const token = lane.token[rival];
      const { words } = lane.dialog;
      const called = make('small', {}, words.length ? `“${words[token]}”` : `token ${token}`);
      head.push(column(lane.rule[rival] ? 'first evicted ' : 'last kept ', called), column('margin'));
      if (!this.origin) rows.push(row(['built up over'], [turnsOf(course), turnsOf(lane.course(fate.at, token)), '']));
    }
    return table(head, rows, 'comparison');
  }

  /** The waterfall, and its sums: by part, and of what was gained, by the topic that was on.
   * @param {number} at @param {Part[]} course */
  #history(at, course) {
    this.course = /** @type {const} */ ([at, course]);
    const from = [
      make('h3', {}, 'Where its score came from'),
      make('canvas', { className: 'course', role: 'img', 'aria-label': 'What raised and lowered the score, turn by turn; the totals are below' }),
    ];
    if (!this.origin) return [...from, this.#sums(course)];
    const note = make('p', { className: 'hint' }, this.origin);
    return this.lane.terms.length > 1 ? [...from, note] : [from[0], note];
  }

  /** A line for each part; of what an entry gained, how much while which topic was on. @param {Part[]} parts */
  #sums(parts) {
    const { dialog } = this.lane;
    const sums = /** @type {Map<string, Part & { topics: Map<number, number> }>} */ (new Map());
    for (const part of parts) {
      const key = `${part.term} ${part.name}`;
      const sum = sums.get(key) ?? { ...part, value: 0, topics: new Map() };
      sums.set(key, sum);
      const hue = dialog.current[part.turn];
      sum.value += part.value;
      sum.topics.set(hue, (sum.topics.get(hue) ?? 0) + part.value);
    }
    const list = make('ul', { className: 'sums' });
    for (const { term, name, value, gained, turn, topics } of [...sums.values()].sort((a, b) => a.term - b.term)) {
      if (value === 0) continue;
      const begins = name === 'Start';
      list.append(make('li', {}, swatch(term), make('span', {}, begins ? `Start, in turn ${turn}` : name), make('b', {}, signed(value))));
      if (gained && !begins) {
        const ordered = [...topics].sort(([one], [other]) => one - other);
        list.append(make('li', { className: 'topics' }, ...ordered.map(([hue, sum]) => {
          const when = `while the topic was ${dialog.label(hue)}`;
          return make('span', { title: when }, tile(dialog, hue), signed(sum), make('span', { className: 'sr-only' }, ` ${when}`));
        })));
      }
    }
    return list;
  }

  /** @param {boolean} gone @param {Answer | null | undefined} answer */
  #search(gone, answer) {
    const title = make('h3', {}, gone ? 'What would have kept it?' : 'What would have evicted it?');
    if (!answer) return [title, make('p', { className: 'hint busy' }, 'Running the dialog again with one setting changed at a time …')];
    const nearest = answer.changes.filter((change) => change.after).slice(0, 3);
    return [
      title,
      make('ul', { className: 'changes' }, ...nearest.map(({ label, before, after }) => make('li', {},
        make('span', {}, label), make('b', {}, `${before} → ${after}`)))),
      make('p', { className: 'hint' }, answer.words),
      ...(answer.changes.length ? [make('details', {}, make('summary', {}, 'All settings and the values tried'),
        make('p', { className: 'hint' }, answer.tried),
        make('ul', {}, ...answer.changes.map(({ words }) => make('li', {}, words))))] : []),
    ];
  }
}
