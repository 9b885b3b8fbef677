// How marks glide, and which one is at a point.

export const NARROW = 5; // pixels; a narrower tile has no room for a letter, and is a stripe

const eased = (/** @type {number} */ share) => 1 - (1 - share) ** 3;

/** Numbers on their way from some to others, by the share of the time. @param {number[]} from @param {number[]} to @param {number} share */
export const between = (from, to, share) => (share >= 1 ? to : from.map((x, k) => x + (to[k] - x) * eased(share)));

/** How far a point is from a box; 0 inside. @param {number} x @param {number} y @param {number[]} box */
export const distance = (x, y, [left, top, width, height]) => Math.max(left - x, x - left - width, top - y, y - top - height, 0);
