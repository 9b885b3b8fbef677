// @ts-check
// Why an entry stays or goes, in the words of fdkvc/explain/explain.py. Every view that says so asks
// here, and tests hold each answer against what Python says of the same run.

import { EVICTED, STATUS } from './record.js';
import { contrast, count, difference, digitsFor, gap } from './numbers.js';

/** @import { Lane } from './record.js' */

/**
 * @typedef {object} Fate what became of an entry, up to a turn
 * @property {'to come' | 'kept' | 'evicted' | 'absent'} fate
 * @property {number | null} left the turn that evicted it
 * @property {number} at the turn that decided: of what has gone, the one that evicted it
 * @property {number | undefined} i its place in the columns of that turn
 * @property {number | undefined} rank among all that the budget ranked, the protected too
 * @property {number} stood for the budget's decision in that turn
 * @property {boolean} shielded whether any of these was protected
 * @property {'' | 'budget' | 'threshold'} rule that evicted it
 * @property {boolean} isProtected
 */

const RULE = /** @type {const} */ (['', 'budget', 'threshold']);

/** @param {Lane} lane @param {number} turn @param {number} token @returns {Fate} */
export function fateOf(lane, turn, token) {
  const left = lane.left(turn, token);
  const at = left ?? turn;
  const i = lane.find(at, token);
  const now = lane.turn(at);
  const here = i === undefined ? 'absent' : left === null ? 'kept' : 'evicted';
  return {
    fate: lane.dialog.born[token] > turn ? 'to come' : here,
    left,
    at,
    i,
    rank: i === undefined ? undefined : now.rank.get(i),
    stood: now.stood.length,
    shielded: now.shielded.length > 0,
    rule: i === undefined ? '' : RULE[lane.rule[i]],
    isProtected: i !== undefined && lane.isProtected[i] === 1,
  };
}

/** @param {Fate} fate @param {number} turn */
export const evictedWhen = ({ left }, turn) => (left === turn ? 'evicted in this turn' : `evicted in turn ${left}`);

/** @param {Fate} fate */
export const rankOf = ({ rank, stood, shielded }) => (rank ? `rank ${rank} of ${shielded ? 'all ' : ''}${stood}` : 'below the threshold');

/** The entry that one is measured by: of what was evicted the last kept, else the first evicted.
 * @param {Lane} lane @param {Fate} fate of an entry that takes part in the turn */
export function rivalOf(lane, { at, rule }) {
  const { stayed, missed } = lane.turn(at);
  if (rule === 'threshold') return undefined;
  return rule === 'budget' ? stayed.at(-1) : missed[0];
}

/** An entry by its word, token and topic. @param {Lane} lane @param {number} i */
export function called(lane, i) {
  const token = lane.token[i];
  const topic = lane.dialog.topicOf(token);
  const word = lane.dialog.words.length ? `“${lane.dialog.words[token]}”, ` : '';
  return `${word}token ${token}${topic ? ` of ${topic}` : ''}`;
}

/** The decision on an entry in a sentence. @param {Lane} lane @param {Fate} fate */
export function verdict(lane, fate) {
  const { kept, missed, cutoff } = lane.turn(fate.at);
  const rival = rivalOf(lane, fate);
  const gone = fate.rule !== '';
  if (fate.rule === 'threshold') return 'The threshold evicted it before the budget was applied.';
  if (!missed.length) return `The budget evicted nothing: ${kept.length} of ${count(lane.budgets[fate.at], 'slot is', 'slots are')} used.`;
  if (fate.i === undefined || rival === undefined || (gone && cutoff === null)) return 'Protected entries took every slot, so scores did not count.';
  const [own, other] = [lane.score[fate.i], lane.score[rival]];
  const apart = gap(own, other, scoreDigits(lane, fate, rival));
  const them = called(lane, rival);
  if (fate.isProtected) {
    return own < other ? `Protected: by score alone it would be evicted before ${them}.` : `Protected, and ${apart} above the first evicted, ${them}.`;
  }
  const measure = gone ? 'the last kept' : 'the first evicted';
  if (own === other) return `Tied with ${measure}, ${them}: ties go to the older entry.`;
  return gone ? `${apart} short of ${measure}, ${them}.` : `${apart} above ${measure}, ${them}.`;
}

/** The decimals at which an entry's score differs from that of its rival, and from the cutoff.
 * @param {Lane} lane @param {Fate} fate @param {number} rival */
function scoreDigits(lane, fate, rival) {
  const { cutoff } = lane.turn(fate.at);
  const scores = [lane.score[fate.i ?? NaN], lane.score[rival]];
  return digitsFor(...scores, ...(fate.rule === '' && cutoff !== null ? [cutoff] : []));
}

/** An entry's score and its terms beside those of its rival; of a single term, the score alone.
 * @param {Lane} lane @param {Fate} fate of an entry that takes part in the turn
 * @param {number} rival */
export function comparison(lane, fate, rival) {
  const i = fate.i ?? NaN;
  const terms = lane.terms.length > 1 ? lane.terms.map(({ name }, k) => ({ name, column: lane.values[k] })) : [];
  return [{ name: 'score', column: lane.score }, ...terms].map(({ name, column }) => {
    const digits = column === lane.score ? scoreDigits(lane, fate, rival) : 3;
    const [own, other] = contrast(column[i], column[rival], digits);
    return { name, own, other, apart: difference(column[i], column[rival], digits) };
  });
}

const FATE = { empty: '', kept: 'kept', new: 'new', evicted: 'evicted', new_evicted: 'new, evicted' };

/** What there is to say of an entry that takes part in a turn, for those who hear the page.
 * @param {Lane} lane @param {number} turn @param {number} token */
export function entryName(lane, turn, token) {
  const { dialog } = lane;
  const i = lane.find(turn, token) ?? NaN;
  const { rank, stood } = lane.turn(turn);
  const word = dialog.words.length ? `“${dialog.words[token]}”, ` : '';
  return [
    `${word}token ${token}`,
    `topic ${dialog.topicOf(token) || 'none'}`,
    `from turn ${dialog.born[token]}`,
    FATE[/** @type {keyof typeof FATE} */ (STATUS[lane.status[i]])],
    ...(lane.isProtected[i] ? ['protected'] : []),
    ...(lane.pages[turn] > 1 ? [`page ${lane.pageOf(turn, i)}`] : []),
    ...(lane.long ? [] : [rank.has(i) ? `rank ${rank.get(i)} of ${stood.length}` : 'below the threshold']),
  ].join(', ');
}

/** A turn of several runs in a sentence. @param {Lane[]} lanes @param {number} turn */
export function headline(lanes, turn) {
  const { dialog } = lanes[0];
  const topic = dialog.label(dialog.hue(turn));
  const [first, ...others] = lanes;
  const keeps = (/** @type {Lane} */ lane, /** @type {number} */ token) => lane.status[lane.find(turn, token) ?? NaN] < EVICTED;
  const shared = first.turn(turn).kept.filter((i) => others.every((lane) => keeps(lane, first.token[i]))).length;
  const start = `Turn ${turn}: topic ${topic || 'none'}.`;
  return others.length ? `${start} ${shared ? count(shared, 'entry is', 'entries are') : 'No entry is'} in all caches.` : start;
}
