// The pieces of a turn's text, which rows are near the view, and where a key leads.

const NEAR = 100; // pixels above and below the view

/** The text of each token, numbered from `first`, and the text between tokens.
 * @param {string} text @param {number[]} lengths negative between tokens @param {number} first
 * @returns {{ text: string, token: number | null }[]} */
export function piecesOf(text, lengths, first) {
  const letters = /[\ud800-\udfff]/.test(text) ? Array.from(text) : text; // as the server counts them
  let [token, at] = [first, 0];
  return lengths.map((length) => {
    const some = letters.slice(at, (at += Math.abs(length)));
    const piece = typeof some === 'string' ? some : some.join('');
    return { text: piece, token: length < 0 ? null : token++ };
  });
}

/** The rows in a view or near it. @param {number} count @param {(row: number) => { top: number, height: number }} boxOf
 * @param {number} top of the view @param {number} height */
export function rowsNear(count, boxOf, top, height) {
  let [first, last] = [0, count - 1];
  while (first < last) {
    const middle = (first + last) >> 1;
    const box = boxOf(middle);
    if (box.top + box.height < top - NEAR) first = middle + 1;
    else last = middle;
  }
  const rows = [];
  for (let row = first; row < count && boxOf(row).top <= top + height + NEAR; row += 1) rows.push(row);
  return rows;
}

/** Where to scroll so that a row is in view, with some text before it; no change if it is in view.
 * @param {{ top: number, height: number }} row @param {{ top: number, height: number }} view */
export function scrolledTo(row, view) {
  const seen = row.top >= view.top && row.top + row.height <= view.top + view.height;
  return seen ? view.top : row.top - Math.max(0, view.height - row.height) * 0.6;
}

/** The word that a key leads to: along the words, or to where the turn before or after begins.
 * @param {{ bounds: number[], born: ArrayLike<number> }} dialog @param {number} turn that is shown
 * @param {number | null} token @param {string} key */
export function wordBeside({ bounds, born }, turn, token, key) {
  const last = born.length - 1;
  const from = token ?? bounds[turn];
  if (token === null && key.startsWith('Arrow')) return from;
  const to = /** @type {{ [key: string]: number }} */ ({
    ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last,
    ArrowUp: bounds[Math.max(0, born[from] - 1)], ArrowDown: bounds[born[from] + 1],
  });
  return Math.min(Math.max(to[key], 0), last);
}
