// The layout of the stage's charts, as arithmetic: `npm test`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellAt, commonest, fitting, flowOf, gridOf, grouped, neighbour, pageOf, sizeOf } from '#player/layout/cells.js';
import { barsOf } from '#player/layout/course.js';
import { between, distance } from '#player/layout/marks.js';
import { riverAt, riverBox, riverNames, riverPoint, riverScale } from '#player/layout/river.js';
import { LEFT, axisOf, bandOf, columnsOf, footOf, spanOf } from '#player/layout/scores.js';
import { lineScale } from '#player/layout/lines.js';
import { piecesOf, rowsNear, scrolledTo, wordBeside } from '#player/layout/transcript.js';
import { cellStarts, leadsTo } from '#player/layout/transport.js';

let seed = 7;
const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
const integer = (low, high) => low + Math.floor(random() * (high - low + 1));
const range = (count, of = (k) => k) => Array.from({ length: count }, (_, k) => of(k));
const cases = (count, check) => range(count).forEach(check);
const near = (one, other, by = 1e-6) => assert.ok(Math.abs(one - other) <= by, `${one} is not ${other}`);

test('a point in the river is the entry whose middle it is, and columns touch without a gap', () => {
  cases(200, () => {
    const [turns, places] = [integer(1, 600), integer(1, 9000)];
    const scale = riverScale(turns, places, integer(100, 900), integer(60, 400));
    const [turn, place] = [integer(0, turns - 1), integer(0, places - 1)];
    assert.deepEqual(riverAt(scale, ...riverPoint(scale, turn, place)), { turn, place });
    const [left, top, width, height] = riverBox(scale, { turn, low: place, high: place + 1, hue: 0 });
    const [x, y] = riverPoint(scale, turn, place);
    if (scale.step >= 3) assert.ok(left <= x && x <= left + width);
    near(top + height / 2, y);
  });
  const [first, second] = [0, 1].map((turn) => riverBox(riverScale(200, 10, 500, 100), { turn, low: 0, high: 1, hue: 0 }));
  assert.equal(first[0] + first[2], second[0]); // narrow columns would show seams
  assert.deepEqual(riverAt(riverScale(4, 10, 100, 116), -5, 50).turn, 0);
  assert.deepEqual(riverAt(riverScale(4, 10, 100, 116), 500, 50).turn, 3);
});

test('a name in the river stands across turns that have room for it', () => {
  const scale = riverScale(10, 10, 200, 216); // 20 pixels a turn and an entry
  const runs = [0, 1, 2, 5].map((turn) => ({ turn, low: turn, high: 6, hue: 0 }));
  const [name, ...others] = riverNames(scale, [...runs, { turn: 3, low: 0, high: 9, hue: 1 }], (hue) => 40 + 100 * hue);
  assert.deepEqual(others, []);
  assert.deepEqual([name.hue, name.turn, name.left, name.right], [0, 2, 1, 59]);
  assert.deepEqual([name.top, name.bottom], [80, 160]); // what the columns share
});

test('cells fit their box, keep pages whole within rows, and are as large as they can be', () => {
  cases(300, () => {
    const page = [1, 1, 4, 16][integer(0, 3)];
    const room = { width: integer(200, 700), height: integer(150, 500), kept: integer(1, 400), gone: integer(0, 200), page, paged: page > 1 };
    const grid = gridOf(room);
    const { side, columns, group, below } = grid;
    assert.ok(columns % page === 0 || page % columns === 0 || columns === fitting(columns, page));
    if (room.paged) assert.equal(group, 1);
    const [kept, gone] = [room.kept, room.gone].map((many) => Math.ceil(many / group));
    const boxes = [...range(kept, (k) => cellAt(grid, k, false)), ...range(gone, (k) => cellAt(grid, k, true))];
    assert.equal(new Set(boxes.map(String)).size, boxes.length);
    for (const [x] of boxes) assert.ok(x >= 0 && x + sizeOf(grid) <= room.width);
    const bottom = Math.max(...boxes.map(([, y]) => y + side));
    if (side > 4) assert.ok(bottom <= room.height);
    assert.ok(below > Math.max(...boxes.slice(0, kept).map(([, y]) => y)));
  });
  assert.equal(gridOf({ width: 400, height: 300, kept: 1, gone: 0, page: 1, paged: false }).side, 42);
  assert.equal(gridOf({ width: 110, height: 110, kept: 16, gone: 0, page: 1, paged: false }).side, 25);
  assert.equal(gridOf({ width: 400, height: 300, kept: 5000, gone: 0, page: 1, paged: false }).group > 1, true);
});

test('words stand in rows within their box, kept above evicted, or not at all where they would be too small', () => {
  cases(200, () => {
    const room = { width: integer(200, 700), height: integer(150, 500) };
    const parts = [integer(1, 120), integer(0, 60)].map((many) => range(many, () => 'w'.repeat(integer(1, 90))));
    const flow = flowOf(parts, room);
    if (!flow) return;
    const [kept, gone] = flow.boxes;
    for (const [x, y, width, height] of [...kept, ...gone]) assert.ok(x >= 0 && y >= 0 && x + width <= room.width && y + height <= room.height);
    const bottom = Math.max(...kept.map(([, y, , height]) => y + height));
    for (const [, y] of gone) assert.ok(y >= flow.below && y > bottom);
    kept.slice(1).forEach(([x, y], k) => assert.ok(y > kept[k][1] || x >= kept[k][0] + kept[k][2]));
  });
  assert.equal(flowOf([range(500, () => 'word'), []], { width: 300, height: 200 }), null);
});

test('neighbours of one value are one cell, and where cells show several, so many of any', () => {
  const valueOf = (entry) => [undefined, 'a', 'a', undefined, undefined, 'b', 'a'][entry];
  assert.deepEqual(grouped(range(7), valueOf, 1), [[0], [1, 2], [3], [4], [5], [6]]);
  assert.deepEqual(grouped(range(7), valueOf, 4), [[0, 1, 2, 3], [4, 5, 6]]);
});

test('a page over two rows has a frame in each, its empty places, and none once it has left', () => {
  const grid = { side: 20, columns: 4, group: 1, below: 100 };
  const { frames, empty } = pageOf(grid, 2, 4, new Set([2, 3, 5]));
  assert.deepEqual(frames, [{ left: 45, right: 82, top: 5, bottom: 22 }, { left: 5, right: 42, top: 25, bottom: 42 }]);
  assert.deepEqual(empty, [[5, 25, 17]]);
  assert.deepEqual(pageOf(grid, 0, 6, new Set()).frames.map(({ right }) => right), [82, 42]);
  assert.deepEqual(pageOf(grid, 0, 8, null), { frames: [{ left: 5, right: 82, top: 100, bottom: 137 }], empty: [], gone: true });
});

test('keys lead to every cell, and the commonest of equals is the first', () => {
  const tiles = range(11, (k) => ({ token: 10 + k, x: (k % 4) * 9, y: Math.floor(k / 4) * 9 }));
  const walk = (token, ...keys) => keys.reduce((at, key) => neighbour(tiles, at, key), token);
  assert.equal(walk(null, 'ArrowDown'), 10);
  assert.equal(walk(13, 'ArrowDown', 'ArrowDown'), 20); // the last row is shorter
  assert.equal(walk(15, 'ArrowUp', 'ArrowUp', 'ArrowLeft'), 10);
  assert.equal(walk(10, 'End', 'ArrowRight'), 20);
  assert.equal(walk(10, 'ArrowLeft', 'Home'), 10);
  assert.equal(neighbour([], 3, 'Home'), null);
  assert.deepEqual([commonest([3]), commonest([1, 2, 2]), commonest([2, 1, 1, 2])], [3, 2, 2]);
});

test('the axis of scores falls from the best to the worst, and gives the cutoff most of the height', () => {
  cases(300, () => {
    const all = range(integer(2, 200), () => random() ** integer(1, 8)).sort((a, b) => b - a);
    const stayed = integer(1, all.length - 1);
    const band = bandOf(600, integer(280, 400), integer(0, 2));
    const { y, zoomed, ticks, breaks } = axisOf(band, { all, contending: all, stayed, cutoff: all[stayed - 1] });
    const heights = all.map(y);
    heights.forEach((height, k) => assert.ok(!k || height >= heights[k - 1] - 1e-9));
    assert.ok(heights[0] >= band.top && heights.at(-1) <= band.bottom);
    assert.deepEqual([...ticks].sort((a, b) => b - a), ticks);
    const inner = all.slice(Math.max(0, stayed - 12), stayed + 12).map(y);
    for (const at of breaks) assert.ok(at < inner[0] || at > inner.at(-1));
    if (zoomed) assert.ok(y(ticks.at(-2)) - y(ticks[1]) > 0.3 * (heights.at(-1) - heights[0]) || ticks.length < 4);
  });
  const flat = axisOf(bandOf(600, 300, 0), { all: [2, 2], contending: [2, 2], stayed: 1, cutoff: 2 });
  assert.deepEqual([flat.zoomed, flat.ticks], [false, [2]]);
  assert.ok(Number.isFinite(flat.y(2)));
});

test('columns of scores stand side by side in their groups within the canvas', () => {
  cases(200, () => {
    const sizes = [integer(0, 60), integer(0, 300), integer(0, 200), integer(0, 40)];
    let i = 0;
    const [shielded, stayed, missed, stale] = sizes.map((size) => range(size, () => i++));
    const width = integer(300, 900);
    const { columns, spans, edge } = columnsOf(bandOf(width, 300, 0), { shielded, stayed, missed, stale });
    assert.deepEqual(columns.map((column) => column.i), range(i));
    columns.forEach((column, k) => assert.ok(k === 0 || column.left >= columns[k - 1].left + columns[k - 1].width - 1e-9));
    if (i) assert.ok(columns[0].left === LEFT && columns.at(-1).left + columns.at(-1).width <= width);
    assert.equal(spans.length, [shielded.length, stayed.length + missed.length, stale.length].filter(Boolean).length);
    assert.equal(edge, stayed.length && missed.length ? columns.find((column) => column.i === missed[0]).left : null);
  });
  assert.ok(footOf(bandOf(600, 300, 2), 1) < 300);
  const { low, high, foot, share } = spanOf([2, 6, NaN, 10]); // from zero
  assert.deepEqual([low, high, foot, share(2), share(10), share(NaN)], [0, 10, 0, 0.2, 1, 0]);
  assert.deepEqual([spanOf([-1, 3]).foot, spanOf([-1, 3]).share(3), spanOf([]).high], [0.25, 0.75, 0]);
});

test('the bars of a waterfall follow one another from nothing to the score', () => {
  cases(200, () => {
    const parts = range(integer(1, 30), () => ({ turn: integer(0, 6), term: 0, name: '', value: random() - 0.3, gained: true })).sort((a, b) => a.turn - b.turn);
    const { bars, score, y, broken, low, bottom, middles } = barsOf(parts, null, 280, 118);
    near(score, parts.reduce((sum, { value }) => sum + value, 0));
    assert.equal(middles.length, new Set(parts.map(({ turn }) => turn)).size);
    let from = 0;
    for (const { part, x, y: top, width, height } of bars) {
      const to = from + part.value;
      near(top, Math.min(y(from), y(to)));
      near(height, Math.max(Math.abs(y(to) - y(from)), 1));
      assert.ok(top >= 0 && top + height <= bottom + 1);
      assert.ok(Math.abs(x + width / 2 - middles.find(({ turn }) => turn === part.turn).x) + width / 2 <= 118 / middles.length + 0.8);
      from = to;
    }
    if (broken) assert.ok(low > 0);
  });
  const gains = [9, 0.1, 0.2].map((value, turn) => ({ turn, term: 0, name: '', value, gained: true }));
  assert.equal(barsOf(gains, 9.1, 280, 118).broken, true);
});

test('a line goes from its lowest to its highest level, a dot above and below', () => {
  const { left, x, y, every } = lineScale({ low: -1, high: 3, turns: 4, width: 124, height: 65 });
  assert.deepEqual([x(0) - left, x(3) - left, y(-1), y(3), y(1)], [10, 70, 45, 5, 25]);
  assert.equal(every, 2);
});

test('a canvas without room has positive steps and sizes, and whoever walks over it arrives', () => {
  const positive = (...all) => all.forEach((x) => assert.ok(x > 0 && x < Infinity, `${x}`));
  cases(200, () => {
    const [width, height, turns, many] = [integer(0, 50), integer(0, 50), integer(1, 40), integer(1, 60)];
    const [river, line] = [riverScale(turns, many, width, height), lineScale({ low: 1, high: 1, turns, width, height })];
    positive(river.step, river.every, line.every, line.x(1) - line.x(0), riverBox(river, { turn: turns - 1, low: 0, high: 1, hue: 0 })[2]);
    assert.ok(riverAt(river, 0, 0).turn === 0 && Number.isFinite(line.y(1)));
    const page = [1, 4, 16][integer(0, 2)];
    const grid = gridOf({ width, height, kept: many, gone: integer(0, 9), page, paged: page > 1 });
    positive(grid.side, grid.columns, grid.group, sizeOf(grid), grid.below);
    for (const [, , wide, high] of flowOf([['word'], []], { width, height })?.boxes.flat() ?? []) positive(wide, high);
    const { bars, side } = barsOf(range(many, (turn) => ({ turn, term: 0, name: '', value: 1, gained: true })), null, width, height);
    positive(side, ...bars.flatMap((bar) => [bar.width, bar.height]));
    const { columns } = columnsOf(bandOf(width, height, 2), { shielded: [], stayed: range(many), missed: range(many), stale: [] });
    positive(...columns.map((column) => column.width));
  });
  const { every } = lineScale({ low: 0, high: 1, turns: 12, width: 20, height: 0 });
  assert.ok(every >= 12); // the first turn alone has a number
});

test('marks start where they stand and end where they go', () => {
  assert.deepEqual(between([0, 8], [4, 0], 0), [0, 8]);
  assert.deepEqual(between([0, 8], [4, 0], 1), [4, 0]);
  assert.deepEqual(between([0, 8], [4, 0], 0.5), [3.5, 1]);
  assert.deepEqual([distance(5, 5, [0, 0, 10, 10]), distance(14, 5, [0, 0, 10, 10])], [0, 4]);
});

test('the pieces of a text are its tokens and what stands between them', () => {
  const text = 'an 🙂 emoji';
  const pieces = piecesOf(text, [2, -1, 1, 0, -1, 5], 40);
  assert.equal(pieces.map((piece) => piece.text).join(''), text);
  assert.deepEqual(pieces.map((piece) => piece.token), [40, null, 41, 42, null, 43]);
  assert.equal(pieces[2].text, '🙂');
});

test('rows near the view are those that a look at every row finds', () => {
  cases(200, () => {
    let top = 0;
    const rows = range(integer(1, 80), () => {
      const box = { top, height: integer(10, 300) };
      top += box.height;
      return box;
    });
    const [from, height] = [integer(0, top), integer(100, 900)];
    const expected = rows.flatMap((box, row) => (box.top + box.height >= from - 100 && box.top <= from + height + 100 ? [row] : []));
    const seen = rowsNear(rows.length, (row) => rows[row], from, height);
    assert.deepEqual(seen, expected);
  });
  assert.equal(scrolledTo({ top: 50, height: 10 }, { top: 40, height: 100 }), 40);
  assert.equal(scrolledTo({ top: 500, height: 50 }, { top: 40, height: 150 }), 440);
});

test('keys go along the words, and up and down to where a turn begins', () => {
  const dialog = { bounds: [0, 3, 5, 9], born: [0, 0, 0, 1, 1, 2, 2, 2, 2] };
  const to = (token, key) => wordBeside(dialog, 1, token, key);
  assert.deepEqual([to(null, 'ArrowLeft'), to(null, 'End'), to(0, 'ArrowLeft'), to(8, 'ArrowDown')], [3, 8, 0, 8]);
  assert.deepEqual([to(4, 'ArrowRight'), to(4, 'ArrowUp'), to(1, 'ArrowDown')], [5, 0, 3]);
});

test('buttons lead to turns and changes of topic, and a long dialog has a cell for each stretch', () => {
  const dialog = { changes: [3, 6], turns: 9 };
  const to = (turn) => ['first', 'back', 'next', 'last', 'before', 'ahead'].map((name) => leadsTo(name, turn, dialog));
  assert.deepEqual(to(4), [0, 3, 5, 8, 3, 6]);
  assert.deepEqual(to(6), [0, 5, 7, 8, 3, 8]);
  assert.deepEqual(cellStarts([0, 0, 1]), [0, 1, 2]);
  assert.deepEqual(cellStarts([0, 0, 1], true), [0, 2]);
  assert.deepEqual(cellStarts([...Array(100).fill(0), ...Array(50).fill(1)]), [0, 100]);
});
