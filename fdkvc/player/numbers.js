// Numbers as the server writes them (fdkvc/core/words.py); it also says with how many digits.

/** A number with this many decimals; halves are rounded to the even digit. @param {number} x @param {number} digits */
export function decimal(x, digits) {
  const size = Math.abs(x);
  // Only odd multiples of a power of two are exactly halfway, and scaling by one is exact.
  const half = (size * 2 ** (digits + 1)) % 2 === 1;
  const below = Math.floor(size * 10 ** digits);
  const text = (half ? (below + (below % 2)) / 10 ** digits : size).toFixed(digits);
  const grouped = text.replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ',');
  return x < 0 && Number(text) !== 0 ? `−${grouped}` : grouped;
}

/** A whole number without decimals, a tiny one with one digit. @param {number} x */
export function number(x, digits = 3) {
  if (!Number.isFinite(x)) return '–';
  if (Number.isInteger(x)) return decimal(x, 0);
  if (Math.abs(x) >= 0.5 * 10 ** -digits) return decimal(x, digits);
  const [digit, places] = Math.abs(x).toExponential(0).split('e-');
  return `${x < 0 ? '−' : ''}${decimal(Number(`${digit}e-${places}`), Number(places))}`;
}

/** The fewest decimals, at most 6, at which two different numbers look different.
 * @param {number} one @param {number} other @param {number} digits at least */
export function digitsFor(one, other, digits) {
  for (let places = digits; places <= 6; places += 1) {
    if (number(one, places) !== number(other, places)) return places;
  }
  return digits;
}

/** One number minus another with its sign: the difference of the written numbers, which a reader can check.
 * @param {number} one @param {number} other */
export function signed(one, other = 0, digits = 3) {
  const read = (/** @type {number} */ x) => Number(number(x, digits).replace('−', '-').replaceAll(',', ''));
  const apart = read(one) - read(other) || one - other;
  return `${apart > 0 ? '+' : ''}${number(Number(apart.toFixed(12)) || apart, digits)}`;
}
