// @ts-check
// Numbers as people write them: the same words as fdkvc/words.py, digit by digit.

const MOST_DIGITS = 6;

/** A number with so many decimals, halves to the even digit, as Python rounds.
 * @param {number} x @param {number} digits */
export function decimal(x, digits) {
  const size = Math.abs(x);
  // Only multiples of a power of two lie in the middle of two decimals; the product is exact.
  const half = (size * 2 ** (digits + 1)) % 2 === 1;
  const below = Math.floor(size * 10 ** digits);
  const text = (half ? (below + (below % 2)) / 10 ** digits : size).toFixed(digits);
  return x < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** A number with three decimals, a whole one without, a tiny one with one digit.
 * @param {number} x */
export function number(x, digits = 3) {
  if (!Number.isFinite(x)) return '–';
  if (Number.isInteger(x)) return `${BigInt(x)}`.replace('-', '−');
  if (Math.abs(x) >= 0.5 * 10 ** -digits) return decimal(x, digits);
  const [digit, places] = Math.abs(x).toExponential(0).split('e-');
  return `${x < 0 ? '−' : ''}0.${digit.padStart(Number(places), '0')}`;
}

/** As many decimals as it takes to tell numbers apart, up to six. @param {number[]} numbers */
export function digitsFor(...numbers) {
  const apart = new Set(numbers).size;
  for (let digits = 3; digits <= MOST_DIGITS; digits += 1) {
    if (new Set(numbers.map((x) => number(x, digits))).size === apart) return digits;
  }
  return 3;
}

/** Two numbers with as many decimals as it takes to tell them apart.
 * @param {number} one @param {number} other */
export function contrast(one, other, least = 3) {
  const digits = Math.max(least, digitsFor(one, other));
  return [number(one, digits), number(other, digits)];
}

/** @param {string} text */
const read = (text) => Number(text.replace('−', '-'));

/** How far apart two numbers are as `contrast` writes them, so that a reader who subtracts finds the same.
 * @param {number} one @param {number} other */
export function gap(one, other, least = 3) {
  const [first, second] = contrast(one, other, least);
  if (first === second) return number(Math.abs(one - other));
  const places = Math.max(...[first, second].map((text) => (text.split('.')[1] ?? '').length));
  const apart = Math.abs(read(first) - read(second));
  return places ? apart.toFixed(places) : number(apart);
}

/** A written number with its sign; nothing has none. @param {string} text */
export const plus = (text) => (read(text) > 0 ? `+${text}` : text);

/** The difference of two numbers, with its sign. @param {number} one @param {number} other */
export const difference = (one, other, least = 3) => (one < other ? `−${gap(one, other, least)}` : plus(gap(one, other, least)));

/** How many there are of something. @param {number} n @param {string} noun */
export const count = (n, noun, plural = `${noun}s`) => `${n} ${n === 1 ? noun : plural}`;
