// Where the cells of a turn stand: the kept in rows, the evicted in rows below, pages together.

/** @typedef {{ side: number, columns: number, group: number, below: number }} Grid group: entries to a cell */
/** @typedef {{ token: number, x: number, y: number }} Tile */

const SINGLE = 2000; // cells that may each show one entry
const EDGE = 5; // pixels around the cells, for the ring of those at the border
const LARGEST = 42;
const SMALLEST = 4;
const LETTERED = 11; // a cell with a letter, as those of several entries have
const [WORDED, LEGIBLE] = [27, 16]; // a row of words, at most and at least
const TITLE = 30; // between kept and evicted

/** The number of columns, or a few fewer, so that no page ends within a row. @param {number} columns @param {number} size */
export function fitting(columns, size) {
  for (let some = columns; 2 * some > columns; some -= 1) {
    if (size % some === 0 || some % size === 0) return some;
  }
  return columns;
}

/** The largest cells that fit; each of several entries where cells would be too small or too many.
 * @param {{ width: number, height: number, kept: number, gone: number, page: number, paged: boolean }} room
 * @returns {Grid} */
export function gridOf({ width, height, kept, gone, page, paged }) {
  const between = gone ? TITLE : 0;
  const columnsOf = (/** @type {number} */ side) => fitting(Math.max(1, Math.floor((width - 2 * EDGE) / side)), page);
  const rows = (/** @type {number} */ many, /** @type {number} */ columns) => Math.ceil(many / columns);
  for (let group = 1; ; group *= 2) {
    const fits = (/** @type {number} */ side) => {
      const [above, left] = [kept, gone].map((many) => rows(Math.ceil(many / group), columnsOf(side)));
      return (above + left) * side + between <= height - 2 * EDGE;
    };
    let side = LARGEST;
    while (side > (group > 1 ? LETTERED : SMALLEST) && !fits(side)) side -= 0.5;
    const many = group === 1 && kept + gone > SINGLE;
    if ((many || !fits(side)) && group < (paged ? 1 : kept)) continue;
    const columns = columnsOf(side);
    return { side, columns, group, below: EDGE + rows(Math.ceil(kept / group), columns) * side + between };
  }
}

/** The boxes of words in rows, the evicted below the kept, and where those begin; null where they would be too small.
 * @param {string[][]} parts @param {{ width: number, height: number }} room */
export function flowOf(parts, { width, height }) {
  for (let side = WORDED; side >= LEGIBLE; side -= 1) {
    let [x, y, below] = [EDGE, EDGE, EDGE];
    const boxes = parts.map((texts, gone) => {
      if (gone) [x, y] = [EDGE, (below = y + side + TITLE)];
      return texts.map((text) => {
        const wide = Math.min(side * (0.7 + 0.34 * text.length), Math.max(width - 2 * EDGE, side));
        if (x + wide > width - EDGE && x > EDGE) [x, y] = [EDGE, y + side];
        x += wide;
        return [x - wide, y, wide - 3, side - 3];
      });
    });
    if (y + side <= height - EDGE) return { boxes, below };
  }
  return null;
}

/** What a cell fills of its place. @param {Grid} grid */
export const sizeOf = ({ side }) => side - (side > 12 ? 3 : 1);

/** @param {Grid} grid @param {number} place among the kept, or the evicted @param {boolean} gone @returns {Point} */
export const cellAt = ({ side, columns, below }, place, gone) => [
  EDGE + (place % columns) * side, Math.floor(place / columns) * side + (gone ? below : EDGE),
];

/** The frames of a page in each row, and its empty places unless it was evicted.
 * @param {Grid} grid @param {number} first @param {number} many @param {Set<number> | null} taken null of one that has left */
export function pageOf(grid, first, many, taken) {
  const size = sizeOf(grid);
  const rows = /** @type {Map<number, [left: number, right: number]>} */ (new Map());
  const empty = /** @type {[x: number, y: number, size: number][]} */ ([]);
  for (let place = first; place < first + many; place += 1) {
    const [x, y] = cellAt(grid, place, !taken);
    const [left] = rows.get(y) ?? [x];
    rows.set(y, [left, x + size]);
    if (taken && !taken.has(place)) empty.push([x, y, size]);
  }
  const frames = /** @type {{ left: number, right: number, top: number, bottom: number }[]} */ ([]);
  for (const [y, [left, right]] of rows) {
    const last = frames.at(-1);
    if (last && last.left === left && last.right === right) last.bottom = y + size;
    else frames.push({ left, right, top: y, bottom: y + size });
  }
  return { frames, empty, gone: !taken };
}

/** The entries of each cell: neighbours of one value, or `group` of any kind.
 * @param {number[]} entries @param {(entry: number) => unknown} valueOf @param {number} group */
export function grouped(entries, valueOf, group) {
  const cells = /** @type {number[][]} */ ([]);
  for (const entry of entries) {
    const [last, value] = [cells.at(-1) ?? [], valueOf(entry)];
    if (last.length && (group > 1 ? last.length < group : value && valueOf(last[0]) === value)) last.push(entry);
    else cells.push([entry]);
  }
  return cells;
}

export function commonest(/** @type {number[]} */ values) {
  if (values.length === 1) return values[0];
  const counts = /** @type {Map<number, number>} */ (new Map());
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].reduce((best, pair) => (pair[1] > best[1] ? pair : best))[0];
}

/** The neighbour of a token in the grid: kept and evicted are one sequence of rows.
 * @param {Tile[]} tiles @param {number | null} token @param {string} key */
export function neighbour(tiles, token, key) {
  const rows = [...tiles].sort((a, b) => a.y - b.y || a.x - b.x);
  const place = rows.findIndex((tile) => tile.token === token);
  const [last, here] = [rows.length - 1, rows[place]];
  if (last < 0) return null;
  if (place < 0 || key === 'Home') return rows[0].token;
  if (key === 'End') return rows[last].token;
  if (key === 'ArrowRight') return rows[Math.min(place + 1, last)].token;
  if (key === 'ArrowLeft') return rows[Math.max(place - 1, 0)].token;
  const way = key === 'ArrowDown' ? 1 : -1;
  const ahead = rows.filter(({ y }) => way * (y - here.y) > 1);
  if (!ahead.length) return token;
  const next = ahead[way > 0 ? 0 : ahead.length - 1].y;
  const row = ahead.filter(({ y }) => y === next);
  return row.reduce((best, tile) => (Math.abs(tile.x - here.x) < Math.abs(best.x - here.x) ? tile : best)).token;
}
