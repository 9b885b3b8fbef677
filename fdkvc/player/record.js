// A run as the server packed it (payload.py), and all that views need of a turn.

export const STATUS = ['', 'kept', 'new', 'evicted', 'new, evicted'];
export const [, KEPT, NEW, EVICTED, NEW_EVICTED] = STATUS.keys();
const [BY_BUDGET, BY_THRESHOLD] = [1, 2];

/** @type {{ [kind: string]: new (buffer: ArrayBuffer) => Column }} */
const KINDS = { f4: Float32Array, u4: Uint32Array, u1: Uint8Array };

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<Packed>} */
export async function unpack(bytes) {
  const packed = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const all = new Uint8Array(await new Response(packed).arrayBuffer());
  const length = new DataView(all.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + length)));
  let at = 4 + length;
  const columns = head.columns.map((/** @type {[string, number]} */ [kind, count]) => {
    const size = Number(kind[1]);
    const value = new Uint8Array(count * size);
    for (let plane = 0; plane < size; plane += 1) {
      for (let i = 0; i < count; i += 1) value[i * size + plane] = all[at + plane * count + i];
    }
    at += count * size;
    return new KINDS[kind](value.buffer);
  });
  return { ...head, columns };
}

/** Kinds of span, with what they are called. @type {{ [kind: string]: string }} */
export const SPANS = { system: 'system prompt', user: 'user', assistant: 'assistant', call: 'tool call', result: 'tool result' };
const KINDS_OF_SPAN = Object.keys(SPANS);
const BY_KIND = 1000; // the first hue of a kind of span; those before are of topics

export class Dialog {
  /** @param {DialogHead} head @param {Paint[]} palette @param {Paint} topicless */
  constructor({ topics, titles, current, bounds, changes, names, named, words, values, needed, spans }, palette, topicless) {
    this.topics = topics;
    this.titles = titles;
    this.current = current;
    this.bounds = bounds;
    this.changes = changes;
    this.palette = palette;
    this.topicless = topicless;
    this.words = words.map((word) => word.trim());
    this.values = new Map(values.flatMap(([text, tokens]) => tokens.map((token) => [token, { text, tokens }])));
    this.valueOf = new Map(needed);
    this.turns = current.length;
    this.born = new Uint16Array(bounds[this.turns]);
    current.forEach((_, turn) => this.born.fill(turn, bounds[turn], bounds[turn + 1]));
    this.kinds = new Uint8Array(spans.length && this.born.length); // for each token, the index of its kind
    spans.forEach(([first, kind]) => this.kinds.fill(KINDS_OF_SPAN.indexOf(kind), first));
    this.byKind = false; // whether entries have the hue of their kind of span, or that of their topic
    this.names = named ? named.map((place) => names[place]) : null;
  }

  /** @param {number} token @returns {string} empty where none is known */
  topicOf(token) {
    if (!this.names) return this.label(this.current[this.born[token]]);
    return this.names[token].split('+').map((letter) => this.titles[this.topics.indexOf(letter)] ?? letter).join(' + ');
  }

  /** @param {number} token @returns {number} the place of its topic, -1 for none; or that of its kind of span */
  hueOf(token) { return this.byKind ? BY_KIND + this.kinds[token] : this.current[this.born[token]]; }

  /** @param {number[]} tokens */
  phrase(tokens) {
    const value = this.values.get(tokens[0]);
    return value?.tokens.length === tokens.length ? value.text : tokens.map((token) => this.words[token]).join(' ');
  }

  /** @param {number} token @returns {string} a key of `SPANS`; nothing where it is not known */
  kindOf(token) { return this.kinds.length ? KINDS_OF_SPAN[this.kinds[token]] : ''; }

  /** Whether its entries have the colour of who speaks: those of an agent, or without topics. */
  get isOfKinds() {
    const spoken = this.kindHues.map((hue) => KINDS_OF_SPAN[hue - BY_KIND]);
    return spoken.some((kind) => !['user', 'assistant'].includes(kind)) || (spoken.length > 0 && this.current.every((hue) => hue < 0));
  }

  /** The hues of the kinds of span that occur. */
  get kindHues() { return [...new Set(this.kinds)].sort().map((place) => BY_KIND + place); }

  /** @param {number} hue @returns {string} */
  label(hue) { return hue < BY_KIND ? this.titles[hue] ?? this.topics.at(hue) ?? '' : SPANS[KINDS_OF_SPAN[hue - BY_KIND]]; }

  /** @param {number} hue */
  letter(hue) { return hue < BY_KIND ? (this.topics.at(hue) ?? '').slice(0, 1) : KINDS_OF_SPAN[hue - BY_KIND][0].toUpperCase(); }

  /** Beyond the last colour, colours repeat with a pattern.
   * @param {number} hue */
  paint(hue) {
    const place = hue % BY_KIND;
    const [fill, ink] = hue < 0 ? this.topicless : this.palette[place % this.palette.length];
    return { fill, ink, hatched: place >= this.palette.length };
  }
}

/** The entries of a turn, as indices into the lane's columns. @param {Lane} lane @param {number} turn */
function ordered({ first, token, score, status, rule, isProtected, cutoffs }, turn) {
  const byAge = Array.from({ length: first[turn + 1] - first[turn] }, (_, place) => first[turn] + place);
  byAge.sort((a, b) => token[a] - token[b]);
  const byScore = (/** @type {number} */ a, /** @type {number} */ b) => score[b] - score[a] || token[a] - token[b];
  const stood = byAge.filter((i) => rule[i] !== BY_THRESHOLD).sort(byScore); // of equal scores, the older before
  const stale = byAge.filter((i) => rule[i] === BY_THRESHOLD);
  const contenders = stood.filter((i) => !isProtected[i]);
  const rank = new Map([...stood.entries(), ...contenders.entries()].map(([place, i]) => [i, place + 1]));
  return {
    at: /** @type {{ get(token: number): number | undefined }} */ (new Map(byAge.map((i) => [token[i], i]))),
    byAge,
    kept: byAge.filter((i) => status[i] < EVICTED),
    gone: byAge.filter((i) => status[i] >= EVICTED),
    stood, // what the budget ranked, best first
    stale, // what the threshold had evicted before
    rank, // among the unprotected, of a protected entry among all
    contenders,
    shielded: stood.filter((i) => isProtected[i]), // the protected
    stayed: contenders.filter((i) => rule[i] !== BY_BUDGET),
    missed: contenders.filter((i) => rule[i] === BY_BUDGET),
    cutoff: cutoffs[turn],
  };
}

export class Lane {
  /** @param {LaneHead} head @param {Column[]} columns @param {Dialog} dialog */
  constructor(head, columns, dialog) {
    this.long = head.long;
    this.label = head.label;
    this.deciding = new Map(head.deciding);
    this.hued = head.hued ? '' : null; // the attribute of what names it, which gives it the hue of FD-KVC
    this.budgets = head.budgets;
    this.budget = Math.max(...head.budgets);
    this.pages = head.pages;
    this.cutoffs = head.cutoffs;
    this.digits = head.digits;
    this.terms = head.terms;
    this.dialog = dialog;
    const [difference, flags, score, ...terms] = columns;
    this.token = new Uint32Array(difference.length);
    let token = 0;
    difference.forEach((step, i) => { token = (token + step) >>> 0; this.token[i] = token; });
    this.status = flags.map((flag) => flag & 7);
    this.rule = flags.map((flag) => (flag >> 3) & 3);
    this.isProtected = flags.map((flag) => flag >> 5);
    this.score = score;
    this.values = terms.length ? terms : [score];
    this.first = [0];
    for (const count of head.counts) this.first.push(this.first[this.first.length - 1] + count);
    this.turns = /** @type {ReturnType<typeof ordered>[]} */ ([]);
    this.most = { kept: 1, gone: 0 }; // most places of any turn: the cells keep their size from turn to turn
    head.counts.forEach((_, turn) => {
      const pages = { kept: new Set(), gone: new Set() };
      for (let i = this.first[turn]; i < this.first[turn + 1]; i += 1) {
        pages[this.status[i] < EVICTED ? 'kept' : 'gone'].add(this.pageOf(turn, i));
      }
      this.most.kept = Math.max(this.most.kept, pages.kept.size * this.pages[turn]);
      this.most.gone = Math.max(this.most.gone, pages.gone.size * this.pages[turn]);
    });
  }

  /** The page of an entry; where entries are evicted one by one, each is a page.
   * @param {number} turn @param {number} i */
  pageOf(turn, i) { return Math.floor(this.token[i] / this.pages[turn]); }

  /** The place of each of these entries, page after page; a page has all of its places.
   * @param {number} turn @param {number[]} entries */
  laid(turn, entries) {
    const size = this.pages[turn];
    const begins = /** @type {Map<number, number>} */ (new Map());
    const places = /** @type {Map<number, number>} */ (new Map());
    for (const i of entries) {
      const page = this.pageOf(turn, i);
      const first = begins.get(page) ?? begins.size * size;
      begins.set(page, first);
      places.set(i, first + (this.token[i] % size));
    }
    return { places, begins: [...begins.values()] };
  }

  /** How a turn's budget is used where memory comes in pages; empty elsewhere.
   * @param {number} turn */
  paged(turn) {
    const size = this.pages[turn];
    if (size === 1) return '';
    const { kept } = this.turn(turn);
    const pages = new Set(kept.map((i) => this.pageOf(turn, i))).size;
    const budget = this.budgets[turn];
    if (budget < size) return `part of a page of ${size}`;
    const [all, beside] = [Math.floor(budget / size), budget % size];
    const empty = pages * size - kept.length;
    return [
      `${pages} of ${all} pages of ${size}`,
      `${empty || 'no'} ${empty === 1 ? 'slot' : 'slots'} empty in them`,
      ...(beside ? [`${beside} of the budget left over`] : []),
    ].join(' · ');
  }

  /** All of a turn, sorted when first needed. @param {number} turn */
  turn(turn) { return (this.turns[turn] ??= ordered(this, turn)); }

  /** The place of an entry in the columns; undefined where it takes no part in a turn.
   * @param {number} turn @param {number} token */
  find(turn, token) { return this.turn(turn).at.get(token); }

  /** The token whose fate is that of the value that a token is part of (`StageRun.deciding`); else the token.
   * @param {number} turn @param {number} token */
  decides(turn, token) { return this.deciding.get(token)?.findLast(([since]) => since <= turn)?.[1] ?? token; }

  /** Whether a turn keeps a token. @param {number} turn @param {number} token */
  keeps(turn, token) { return this.status[this.find(turn, token) ?? NaN] < EVICTED; }

  /** When a token was evicted for good, up to a turn; null while it is in the cache.
   * @param {number} turn @param {number} token */
  left(turn, token) {
    for (let past = turn; past >= this.dialog.born[token]; past -= 1) {
      const i = this.find(past, token);
      if (i !== undefined) return this.status[i] >= EVICTED ? past : null;
    }
    return null;
  }

  /** Where the terms of an entry's score came from: what each turn took and gave, in order.
   * @param {number} turn @param {number} token */
  course(turn, token) {
    let first = turn;
    while (first > 0 && this.status[this.find(first - 1, token) ?? NaN] < EVICTED) first -= 1;
    const parts = /** @type {Part[]} */ ([]);
    this.terms.forEach((term, k) => {
      let value = 0;
      for (let past = term.remembers ? first : turn; past <= turn; past += 1) {
        const now = this.values[k][this.find(past, token) ?? NaN];
        if (past > first) {
          for (const share of term.shares) {
            const left = value * share.values[past];
            if (left !== value) parts.push({ turn: past, term: k, name: share.name, value: left - value, gained: false });
            value = left;
          }
        }
        const name = past === first && term.shares.length ? 'Start' : term.gained;
        parts.push({ turn: past, term: k, name, value: now - value, gained: true });
        value = now;
      }
    });
    return parts.sort((a, b) => a.turn - b.turn);
  }

  /** In each turn, the runs of entries of one topic that are neighbours by age.
   * @returns {Neighbours[]} */
  river() {
    const runs = /** @type {Neighbours[]} */ ([]);
    for (let turn = 0; turn < this.dialog.turns; turn += 1) {
      let open = /** @type {Neighbours | null} */ (null);
      this.turn(turn).kept.forEach((i, slot) => {
        const hue = this.dialog.hueOf(this.token[i]);
        if (open && open.hue === hue) open.high = slot + 1;
        else runs.push((open = { turn, low: slot, high: slot + 1, hue }));
      });
    }
    return runs;
  }

  /** The slot by age of a token at the end of each turn that keeps it.
   * @param {number} token @returns {[turn: number, slot: number][]} */
  path(token) {
    const turns = [...this.dialog.current.keys()].slice(this.dialog.born[token]);
    const slots = turns.map((turn) => /** @type {Point} */ ([turn, this.turn(turn).kept.indexOf(this.find(turn, token) ?? -1)]));
    return slots.filter(([, slot]) => slot >= 0);
  }
}
