// Brings a part of the page into view, again while the page is still growing.

/** @typedef {{ part: string, block: ScrollLogicalPosition, count: number | null }} Data */

export default function (/** @type {{ data: Data }} */ { data: { part, block, count } }) {
  if (count !== null) {
    const before = Number(document.body.dataset.count ?? count);
    document.body.dataset.count = `${count}`;
    if (count <= before) return;
  }
  const again = [100, 400, 800, 1600, 3000].map((ms) =>
    setTimeout(() => document.querySelector(part)?.scrollIntoView({ block }), ms));
  for (const by of ['wheel', 'touchstart', 'pointerdown', 'keydown']) { // a person goes elsewhere
    addEventListener(by, () => again.forEach((timer) => clearTimeout(timer)), { once: true });
  }
}
