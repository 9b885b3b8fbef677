// Why an entry stays or goes in several runs, a section for each.

import { make, tile } from './dom.js';
import { fateOfValue, fateWords } from './fate.js';
import { theme } from './marks.js';
import { number } from './numbers.js';
import { column, heading, table } from './why.js';

export class WhyInAll {
  /** @param {Lane[]} lanes @param {() => void} unpin */
  constructor(lanes, unpin) {
    this.box = make('aside', { className: 'panel why', 'aria-label': 'Why' });
    this.lanes = lanes;
    this.unpin = unpin;
    this.dialog = lanes[0].dialog;
    this.shown = '';
  }

  /** What became of the value that an entry is a piece of, and of the entry beside it; else of the entry.
   * @param {Lane} lane @param {number} turn @param {number} token */
  fate(lane, turn, token) {
    const entry = fateWords(lane, turn, token);
    const value = fateOfValue(lane, turn, token);
    return value ? { ...value, beside: `token ${token}: ${entry.words}` } : { ...entry, beside: '' };
  }

  /** `chosen` says whether the entry is pinned, and `sentences` has the server's explanation for each lane.
   * @param {number} turn @param {number | null} token @param {boolean} chosen
   * @param {string[] | null} sentences */
  show(turn, token, chosen, sentences) {
    const shown = JSON.stringify([turn, token, chosen, sentences, theme.ink, this.dialog.byKind]);
    if (shown === this.shown) return;
    this.shown = shown;
    this.box.classList.toggle('pinned', chosen);
    this.box.replaceChildren(...(token === null ? this.#turn(turn) : this.#entry(turn, token, chosen, sentences)));
  }

  #turn(/** @type {number} */ turn) {
    const { dialog, lanes } = this;
    const kept = lanes.map((lane) => lane.turn(turn).kept.map((i) => dialog.hueOf(lane.token[i])));
    const hues = [...new Set(kept.flat())].sort((a, b) => a - b);
    return [
      make('h2', {}, 'Why'),
      make('p', {}, 'Point at an entry to see what each policy does with it. Click to pin, Esc to unpin.'),
      make('h3', {}, `Kept in turn ${turn}, by ${dialog.byKind ? 'speaker' : 'topic'}`),
      table(
        [column(dialog.byKind ? 'speaker' : 'topic'), ...hues.map((hue) => make('th', { scope: 'col', 'aria-label': dialog.label(hue) || 'none' }, tile(dialog, hue)))],
        lanes.map((lane, k) => make('tr', {}, make('th', { scope: 'row', 'data-policy': lane.hued }, lane.label),
          ...hues.map((hue) => make('td', {}, number(kept[k].filter((other) => other === hue).length))))),
      ),
    ];
  }

  /** @param {number} turn @param {number} token @param {boolean} chosen
   * @param {string[] | null} sentences */
  #entry(turn, token, chosen, sentences) {
    const { dialog, lanes } = this;
    const fates = lanes.map((lane) => this.fate(lane, turn, token));
    const several = lanes.length > 1, held = fates.filter(({ held }) => held).length;
    const said = several ? { words: `${held}\u00a0of\u00a0${lanes.length}`, below: 'keep\u00a0it' } : { ...fates[0], below: '' };
    const sections = lanes.map((lane, k) => make('section', { className: 'of-lane' },
      make('h2', { 'data-policy': lane.hued }, lane.label),
      several ? make('div', { className: `fate ${fates[k].gone ? 'gone' : ''}` }, make('b', {}, fates[k].words)) : null,
      make('span', { className: 'how' }, fates[k].below),
      fates[k].beside ? make('span', { className: 'how' }, fates[k].beside) : null,
      chosen && (!sentences || sentences.length) ? make('p', { className: 'hint' }, sentences?.[k] ?? '…') : null));
    const hint = chosen ? [] : [make('p', { className: 'hint' }, 'Click to pin it.')];
    const head = heading(dialog, token, dialog.valueOf.get(token), chosen, said, this.unpin);
    if (chosen) head.lastElementChild?.before(this.#unfold());
    return [head, ...sections, ...hint];
  }

  // On a small screen the panel is a sheet, which is its header until it is unfolded.
  #unfold() {
    const open = this.box.classList.contains('open');
    const button = make('button', { className: 'unfold', 'aria-expanded': `${open}`, 'aria-label': 'Show why in each lane' }, '▴');
    button.addEventListener('click', () => button.setAttribute('aria-expanded', `${this.box.classList.toggle('open')}`));
    return button;
  }
}
