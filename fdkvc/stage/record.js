// ---------------------------------------------------------------------------------- the record
// A run as the server packed it (payload.py), and everything that is asked of a turn.

const STATUS = ['empty', 'kept', 'new', 'evicted', 'new_evicted'];
const [, KEPT, NEW, EVICTED, NEW_EVICTED] = STATUS.keys();
const BY_BUDGET = 1;
const BY_THRESHOLD = 2;
const KINDS = { f4: Float32Array, u4: Uint32Array, u1: Uint8Array };

async function unpack(bytes) {
  const packed = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  const all = new Uint8Array(await new Response(packed).arrayBuffer());
  const length = new DataView(all.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + length)));
  let at = 4 + length;
  const columns = head.columns.map(([kind, count]) => {
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

class Dialog {
  constructor({ topics, current, bounds, changes, names, named, words }, palette) {
    Object.assign(this, { topics, current, bounds, changes, palette, words: words.map((word) => word.trim()) });
    this.turns = current.length;
    this.born = new Uint16Array(bounds.at(-1));
    for (let turn = 0; turn < this.turns; turn += 1) {
      this.born.fill(turn, bounds[turn], bounds[turn + 1]);
    }
    this.topicOf = (token) => (named ? names[named[token]] : this.topics.at(this.hueOf(token)));
  }

  // A hue is the place of a topic; -1 for none.
  hueOf(token) { return this.current[this.born[token]]; }

  hue(turn) { return this.current[turn]; }

  label(hue) { return this.topics.at(hue); }

  letter(hue) { return this.label(hue).slice(0, 1); }

  // Beyond the last colour they begin again, and a pattern tells them from those before.
  paint(hue) {
    if (hue < 0) return { fill: '#999999', ink: '#000000', hatched: false };
    const [fill, ink] = this.palette[hue % this.palette.length];
    return { fill, ink, hatched: hue >= this.palette.length };
  }
}

class Lane {
  constructor(head, columns, dialog) {
    Object.assign(this, head);
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
    this.counts.forEach((count) => this.first.push(this.first.at(-1) + count));
    this.turns = [];
    this.most = { kept: 1, gone: 0 }; // places of any turn, so that the cells stay where they are
    for (let turn = 0; turn < dialog.turns; turn += 1) {
      const size = this.pages[turn];
      const seen = { kept: new Set(), gone: new Set() };
      for (let i = this.first[turn]; i < this.first[turn + 1]; i += 1) {
        seen[this.status[i] < EVICTED ? 'kept' : 'gone'].add(this.pageOf(turn, i));
      }
      for (const name of Object.keys(seen)) this.most[name] = Math.max(this.most[name], seen[name].size * size);
    }
  }

  // The page of an entry; where entries leave by themselves, each is one.
  pageOf(turn, i) { return Math.floor(this.token[i] / this.pages[turn]); }

  // The place of each of these entries: one after the other, each page with all of its places.
  laid(turn, entries) {
    const size = this.pages[turn];
    const begins = new Map();
    const places = new Map();
    for (const i of entries) {
      const page = this.pageOf(turn, i);
      if (!begins.has(page)) begins.set(page, begins.size * size);
      places.set(i, begins.get(page) + (this.token[i] % size));
    }
    return { places, begins: [...begins.values()] };
  }

  // How a turn's memory is spent, where it comes in pages; nothing where it does not.
  paged(turn) {
    const size = this.pages[turn];
    if (size === 1) return '';
    const { kept } = this.turn(turn);
    const pages = new Set(kept.map((i) => this.pageOf(turn, i))).size;
    if (this.budget < size) return `part of a page of ${size}`;
    const [all, beside] = [Math.floor(this.budget / size), this.budget % size];
    const empty = pages * size - kept.length;
    return [
      `${pages} of ${all} pages of ${size}`,
      `${empty || 'no'} ${empty === 1 ? 'place' : 'places'} empty in them`,
      ...(beside ? [`${beside} of the budget beside whole pages`] : []),
    ].join(' · ');
  }

  // All of a turn, put in order when it is first asked for.
  turn(turn) {
    return (this.turns[turn] ??= this.#ordered(turn));
  }

  #ordered(turn) {
    const all = [];
    const at = new Map();
    for (let i = this.first[turn]; i < this.first[turn + 1]; i += 1) {
      all.push(i);
      at.set(this.token[i], i);
    }
    all.sort((a, b) => this.token[a] - this.token[b]);
    // Of equal scores the older has the better place.
    const byScore = (a, b) => this.score[b] - this.score[a] || this.token[a] - this.token[b];
    const stood = all.filter((i) => this.rule[i] !== BY_THRESHOLD).sort(byScore);
    const stale = all.filter((i) => this.rule[i] === BY_THRESHOLD);
    const rank = new Map(stood.map((i, place) => [i, place + 1]));
    const contenders = stood.filter((i) => !this.isProtected[i]);
    const stayed = contenders.filter((i) => this.rule[i] !== BY_BUDGET);
    return {
      at,
      byAge: all,
      byScore: [...stood, ...stale],
      kept: all.filter((i) => this.status[i] < EVICTED),
      gone: all.filter((i) => this.status[i] >= EVICTED),
      stood,
      stale,
      rank,
      contenders,
      shielded: stood.filter((i) => this.isProtected[i]),
      stayed,
      missed: contenders.filter((i) => this.rule[i] === BY_BUDGET),
      cutoff: this.cutoffs[turn],
    };
  }

  // The place of an entry in the columns; undefined where it takes no part in a turn.
  find(turn, token) { return this.turn(turn).at.get(token); }

  // When a token was evicted for good, up to a turn; null while it is in the cache.
  left(turn, token) {
    for (let past = turn; past >= this.dialog.born[token]; past -= 1) {
      const i = this.find(past, token);
      if (i !== undefined) return this.status[i] >= EVICTED ? past : null;
    }
    return null;
  }

  // Where the terms of an entry's score came from: what each turn took and gave, in order.
  course(turn, token) {
    let first = turn;
    while (first > 0) {
      const before = this.find(first - 1, token);
      if (before === undefined || this.status[before] >= EVICTED) break;
      first -= 1;
    }
    const parts = [];
    this.terms.forEach((term, k) => {
      let value = 0;
      for (let past = term.remembers ? first : turn; past <= turn; past += 1) {
        const now = this.values[k][this.find(past, token)];
        if (past > first) {
          for (const share of term.shares) {
            const left = value * share.values[past];
            if (left !== value) {
              parts.push({ turn: past, term: k, name: share.name, value: left - value, own: false });
            }
            value = left;
          }
        }
        const name = past === first && term.shares.length ? 'Start' : term.gained;
        parts.push({ turn: past, term: k, name, value: now - value, own: true });
        value = now;
      }
    });
    return parts.sort((a, b) => a.turn - b.turn);
  }

  // Each turn's runs of neighbours by age that are of one topic, as [turn, low, high, hue].
  river() {
    const runs = [];
    for (let turn = 0; turn < this.dialog.turns; turn += 1) {
      let open = null;
      this.turn(turn).kept.forEach((i, slot) => {
        const hue = this.dialog.hueOf(this.token[i]);
        if (open && open.hue === hue) open.high = slot + 1;
        else runs.push((open = { turn, low: slot, high: slot + 1, hue }));
      });
    }
    return runs;
  }

  // The slot by age of a token at the end of each turn that keeps it.
  path(token) {
    const path = [];
    for (let turn = this.dialog.born[token]; turn < this.dialog.turns; turn += 1) {
      const i = this.find(turn, token);
      if (i !== undefined && this.status[i] < EVICTED) {
        path.push([turn, this.turn(turn).kept.indexOf(i)]);
      }
    }
    return path;
  }
}

// ---------------------------------------------------------------------------------- words

const MOST_DIGITS = 6;

// The numbers as told/ writes them: fdkvc/words.py.
function written(x, digits = 3) {
  if (!Number.isFinite(x)) return '–';
  if (x === Math.round(x)) return `${x + 0}`;
  if (Math.abs(x) >= 0.5 * 10 ** -digits) return x.toFixed(digits);
  return String(Number(x.toPrecision(1)));
}

// As many decimals as it takes to tell numbers apart.
function digitsFor(...numbers) {
  const apart = new Set(numbers).size;
  for (let digits = 3; digits <= MOST_DIGITS; digits += 1) {
    if (new Set(numbers.map((x) => written(x, digits))).size === apart) return digits;
  }
  return 3;
}

// How far apart two numbers are as they are written, so that who subtracts finds the same.
function gap(one, other, digits = digitsFor(one, other)) {
  const [first, second] = [one, other].map((x) => written(x, digits));
  if (first === second) return one === other ? '0' : written(one - other);
  const places = Math.max(...[first, second].map((text) => (text.split('.')[1] ?? '').length));
  return (Number(first) - Number(second)).toFixed(places);
}

const FATE = { kept: 'kept', new: 'new', evicted: 'evicted', new_evicted: 'new, evicted' };

function nameOf(lane, turn, token) {
  const { dialog } = lane;
  const i = lane.find(turn, token);
  const now = lane.turn(turn);
  const said = dialog.words.length ? `“${dialog.words[token]}”, ` : '';
  const rank = now.rank.get(i);
  return [
    `${said}token ${token}`,
    `topic ${dialog.topicOf(token) || 'none'}`,
    `from turn ${dialog.born[token]}`,
    FATE[STATUS[lane.status[i]]],
    ...(lane.isProtected[i] ? ['protected'] : []),
    ...(lane.pages[turn] > 1 ? [`page ${lane.pageOf(turn, i)}`] : []),
    rank ? `rank ${rank} of ${now.stood.length}` : 'below the threshold',
  ].join(', ');
}
