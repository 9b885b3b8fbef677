// The fate of an entry up to a turn, and the numbers that decided. The server writes the sentences on why.

import { digitsFor, number, signed } from './numbers.js';
import { STATUS } from './record.js';

const RULE = ['', 'budget', 'threshold'];

/** What became of an entry up to a turn; `left` is the turn that evicted it, and `at` the one that decided.
 * @param {Lane} lane @param {number} turn @param {number} token */
export function fateOf(lane, turn, token) {
  const left = lane.left(turn, token);
  const at = left ?? turn;
  const i = lane.find(at, token);
  const now = lane.turn(at);
  const isProtected = i !== undefined && lane.isProtected[i] === 1;
  return {
    fate: lane.dialog.born[token] > turn ? 'to come' : left === null ? 'kept' : 'evicted',
    left,
    at,
    i, // its place in the columns of that turn
    rank: i === undefined ? undefined : now.rank.get(i),
    ranked: isProtected ? now.stood.length : now.contenders.length,
    shielded: now.shielded.length > 0,
    rule: i === undefined ? '' : RULE[lane.rule[i]],
    isProtected,
  };
}

/** @param {Lane} lane @param {Fate} fate */
function rankOf(lane, { rank, ranked, shielded, isProtected }) {
  if (lane.long) return '';
  const among = shielded && !isProtected ? ' unprotected' : '';
  return rank ? `rank ${number(rank)} of ${number(ranked)}${among}` : 'below the threshold';
}

/** What became of an entry in a few words, and under them its rank.
 * @param {Lane} lane @param {number} turn @param {number} token
 * @returns {{ words: string, below: string, held?: boolean, gone?: boolean }} */
export function fateWords(lane, turn, token) {
  const fate = fateOf(lane, turn, token);
  if (fate.fate === 'to come') return { words: `arrives in turn ${lane.dialog.born[token]}`, below: '' };
  const below = rankOf(lane, fate);
  if (fate.fate === 'kept') return { words: fate.isProtected ? 'kept: protected' : 'kept', below, held: true };
  return { words: `evicted in ${fate.left === turn ? 'this turn' : `turn ${fate.left}`}`, below, gone: true };
}

/** What became of the value that a token is a piece of; null where that is what became of the token.
 * @param {Lane} lane @param {number} turn @param {number} token */
export function fateOfValue(lane, turn, token) {
  const { born, words } = lane.dialog;
  const decides = lane.decides(turn, token);
  if (decides === token) return null;
  const { below, ...fate } = fateWords(lane, turn, decides);
  const by = `decided by “${words[decides]}”, token ${decides} of turn ${born[decides]}`;
  return { ...fate, below: [by, below].filter(Boolean).join(' · ') };
}

/** The entry whose score is the cutoff; for that entry itself, the first evicted. None without a cutoff.
 * @param {Lane} lane @param {Fate} fate */
export function rivalOf(lane, { at, i, rule }) {
  const { stayed, missed } = lane.turn(at);
  if (i === undefined || rule === 'threshold' || !stayed.length) return undefined;
  return i === stayed.at(-1) ? missed[0] : missed.length ? stayed.at(-1) : undefined;
}

/** An entry's score and the terms of it, beside those of its rival.
 * @param {Lane} lane @param {Fate} fate @param {number | undefined} rival */
export function comparison(lane, { at, i = NaN }, rival) {
  const terms = lane.terms.length > 1 ? lane.terms.map(({ name }, k) => ({ name, column: lane.values[k] })) : [];
  return [{ name: 'score', column: lane.score }, ...terms].map(({ name, column }) => {
    const [entry, other] = [column[i], rival === undefined ? NaN : column[rival]];
    const digits = digitsFor(entry, other, lane.digits[at]);
    return { name, entry: number(entry, digits), rival: number(other, digits), margin: signed(entry, other, digits) };
  });
}

/** All about an entry in a turn, for screen readers.
 * @param {Lane} lane @param {number} turn @param {number} token */
export function entryName(lane, turn, token) {
  const { dialog } = lane;
  const fate = fateOf(lane, turn, token);
  const i = fate.i ?? NaN;
  const word = dialog.words.length ? `“${dialog.words[token]}”, ` : '';
  return [
    `${word}token ${token}`,
    `topic ${dialog.topicOf(token) || 'none'}`,
    `from turn ${dialog.born[token]}`,
    STATUS[lane.status[i]],
    fate.isProtected && 'protected',
    lane.pages[turn] > 1 && `page ${lane.pageOf(turn, i)}`,
    rankOf(lane, fate),
  ].filter(Boolean).join(', ');
}
