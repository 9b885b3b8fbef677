// What every view draws with: colours, words and lines on a canvas, and entries as tiles that move.

import { NARROW, between, distance } from './layout/marks.js';
import { EVICTED, NEW, NEW_EVICTED } from './record.js';

// Entries as tiles on a canvas. As elements that move, 176 of them took 37 ms to the first frame
// and 1,088 took 260; drawn, 4 and 11.

const GLIDE = 220; // milliseconds; the next step begins wherever the last one has got to

export const still = matchMedia('(prefers-reduced-motion: reduce)');

// The page's colours and letters, read again when its theme changes.
/** @type {{ ink: string, paper: string, faint: string, soft: string, font: string, terms: string[] }} */
export const theme = { ink: '#000', paper: '#fff', faint: '#ddd', soft: '#777', font: 'sans-serif', terms: [] };

export function readTheme(/** @type {HTMLElement} */ root) {
  const probe = root.appendChild(document.createElement('i'));
  for (const name of /** @type {const} */ (['ink', 'paper', 'faint', 'soft'])) {
    probe.style.color = `var(--stage-${name})`;
    theme[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  const [red, green, blue] = (theme.paper.match(/[\d.]+/g) ?? []).map(Number);
  root.classList.toggle('dark', red + green + blue < 384);
  const style = getComputedStyle(root);
  theme.font = style.fontFamily;
  theme.terms = style.getPropertyValue('--stage-terms').trim().split(/\s+/);
}

/** Device pixels for each CSS pixel. */
const pixels = () => devicePixelRatio || 1;

/** @type {Surface} before its box is measured */
export const NOWHERE = /** @type {any} */ ({});

/** Fits a canvas to its box; returns its context in CSS pixels, and the size. Reading the size of a
 * box forces a layout, so this is called once for a layout, not in every frame.
 * @param {HTMLCanvasElement} canvas @returns {Surface} */
export function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = pixels();
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { pen, width, height };
}

/** @param {Pen} pen @param {string | number} text @param {number} x @param {number} y
 * @param {{ size?: number, bold?: boolean, align?: CanvasTextAlign, fill?: string, room?: number }} look */
export function words(pen, text, x, y, { size = 11, bold = false, align = 'left', fill = theme.soft, room = align === 'right' ? x : Infinity } = {}) {
  pen.font = `${bold ? 600 : 400} ${size}px ${theme.font}`;
  pen.textAlign = align;
  pen.fillStyle = fill;
  pen.fillText(`${text}`, x, y, room < Infinity ? room : undefined); // narrower rather than cut off
}

/** @param {Pen} pen @param {Point[]} points */
export function line(pen, points, { stroke = theme.ink, width = 1, dash = /** @type {number[]} */ ([]) } = {}) {
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y);
  outline(pen, stroke, width, dash);
}

/** @param {Pen} pen @param {string} stroke @param {number} width @param {number[]} dash */
function outline(pen, stroke, width, dash) {
  pen.setLineDash(dash);
  pen.strokeStyle = stroke;
  pen.lineWidth = width;
  pen.stroke();
  pen.setLineDash([]);
}

/** A box with round corners, filled, framed or both.
 * @param {Pen} pen @param {number[]} box @param {number} radius */
export function rounded(pen, [x, y, width, height], radius, { fill = '', stroke = '', thick = 1, dash = /** @type {number[]} */ ([]) }) {
  pen.beginPath();
  pen.roundRect(x, y, width, height, radius);
  pen.fillStyle = fill;
  if (fill) pen.fill();
  if (stroke) outline(pen, stroke, thick, dash);
}

/** @param {Pen} pen @param {number} x @param {number} y @param {number} radius @param {string} fill */
export function disc(pen, x, y, radius, fill) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
  pen.fillStyle = fill;
  pen.fill();
}

/** A shape of a policy: the path of an SVG within a unit circle.
 * @param {Pen} pen @param {string} shape @param {Point} at @param {string} fill */
export function sign(pen, shape, [x, y], fill) {
  pen.save();
  pen.translate(x, y);
  pen.scale(4, 4);
  pen.fillStyle = fill;
  pen.fill(new Path2D(shape));
  pen.restore();
}

/** How the previous run is drawn. */
export const GHOST = () => ({ stroke: theme.ink, width: 1.5, dash: [4, 3] });

/** Where an axis leaves something out.
 * @param {Pen} pen @param {number} from @param {number} to @param {number} y */
export function cut(pen, from, to, y) {
  pen.fillStyle = theme.paper;
  pen.fillRect(from, y - 3, to - from, 6);
  for (const edge of [y - 3, y + 3]) line(pen, [[from, edge], [to, edge]], { stroke: theme.faint, dash: [4, 3] });
}

/** @param {Pen} pen @param {number} x @param {number} y @param {number} width
 * @param {number} height */
export function hatch(pen, x, y, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  for (let at = -height; at < width; at += 5) {
    line(pen, [[x + at, y + height], [x + at + height, y]], { stroke: 'rgb(255 255 255 / .6)', width: 1.5 });
  }
  pen.restore();
}

const sprites = /** @type {Map<string, OffscreenCanvas>} */ (new Map());

/** A tile, drawn once for each look and then only copied.
 * @param {Target} mark */
function sprite({ dialog, hue, look, text, at: [, , width, height] }) {
  const ratio = pixels();
  const { fill, ink, hatched } = dialog.paint(hue);
  const key = [fill, hatched, text, look, width, height, ratio, theme.ink, theme.paper].join();
  let canvas = sprites.get(key);
  if (!canvas) {
    if (sprites.size > 2000) sprites.clear();
    canvas = new OffscreenCanvas(Math.ceil(width * ratio), Math.ceil(height * ratio));
    const pen = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d'));
    pen.scale(ratio, ratio);
    const gone = look.includes('gone');
    const framed = look.includes('new') && width >= 10; // of less width, a frame would leave the letter no room
    const capped = look.includes('new') && !framed;
    const round = Math.min(3, width / 4);
    pen.save();
    pen.globalAlpha = gone ? 0.3 : 1;
    pen.beginPath();
    pen.roundRect(0, 0, width, height, round);
    pen.clip();
    pen.fillStyle = fill;
    pen.fillRect(0, 0, width, height);
    if (hatched) hatch(pen, 0, 0, width, height);
    pen.restore();
    pen.fillStyle = theme.ink;
    if (capped) pen.fillRect(0, 0, width, 2);
    if (framed) rounded(pen, [0.9, 0.9, width - 1.8, height - 1.8], round, { stroke: theme.ink, thick: 1.8 });
    else if (gone) rounded(pen, [0.5, 0.5, width - 1, height - 1], round, { stroke: fill });
    const size = Math.min(13, Math.round(Math.min(width * 1.25, height * 0.72)));
    const letters = gone ? theme.ink : ink;
    const baseline = height / 2 + size * 0.36 + (capped ? 0.8 : 0);
    if (size >= 7) words(pen, text, width / 2, baseline, { size, bold: true, align: 'center', fill: letters, room: width - 4 });
    if (look.includes('other')) {
      const corner = Math.max(4, width * 0.3);
      pen.fillStyle = theme.ink;
      pen.beginPath();
      for (const [x, y] of [[width - corner, 0], [width, 0], [width, corner]]) pen.lineTo(x, y);
      pen.fill();
    }
    if (look.includes('held')) {
      pen.fillStyle = letters;
      pen.fillRect(width * 0.2, height - Math.max(3, height * 0.14), width * 0.6, Math.max(1.2, height * 0.07));
    }
    sprites.set(key, canvas);
  }
  return canvas;
}

// Marks that keep their identity: each token's numbers glide from where they are to where they go.
export class Marks {
  constructor() {
    this.shown = /** @type {Map<number, Mark>} */ (new Map());
    this.begun = 0;
  }

  /** New marks start at `from(at)`, removed ones end at `to(at)`.
   * @param {Map<number, Target>} targets by token
   * @param {{ from: (at: At) => At, to: (at: At) => At, glide: boolean }} way */
  go(targets, { from, to, glide }) {
    const now = performance.now();
    this.settle(now);
    const next = /** @type {Map<number, Mark>} */ (new Map());
    for (const [token, target] of targets) {
      const start = glide ? this.shown.get(token)?.now ?? from(target.at) : target.at;
      next.set(token, { ...target, start, now: start });
    }
    for (const [token, mark] of glide ? this.shown : []) {
      if (!next.has(token) && !mark.leaves) next.set(token, { ...mark, start: mark.now, at: to(mark.now), leaves: true });
    }
    this.shown = next;
    this.begun = glide ? now : -Infinity;
  }

  /** Moves every mark to its present position; returns whether any still moves.
   * @param {number} now */
  settle(now) {
    const share = Math.min(1, (now - this.begun) / GLIDE);
    for (const [token, mark] of this.shown) {
      if (share === 1 && mark.leaves) this.shown.delete(token);
      else mark.now = between(mark.start, mark.at, share);
    }
    return share < 1;
  }

  /** @param {Pen} pen @param {Dialog} dialog */
  draw(pen, dialog) {
    const ratio = pixels();
    const snap = (/** @type {number} */ x) => Math.round(x * ratio) / ratio;
    for (const mark of this.shown.values()) {
      const { now: [x, y, , , opacity], at: [, , width, height], hue, look } = mark;
      if (width < NARROW) {
        pen.globalAlpha = opacity * (look.includes('gone') ? 0.4 : 1);
        pen.fillStyle = dialog.paint(hue).fill;
        pen.fillRect(x, snap(y), width, height);
      } else {
        pen.globalAlpha = opacity;
        pen.drawImage(sprite(mark), snap(x), snap(y), width, height);
      }
    }
    pen.globalAlpha = 1;
  }

  /** @param {Pen} pen @param {number} token @param {number} width */
  ring(pen, token, width, hue = theme.ink) {
    const mark = this.shown.get(token);
    if (!mark) return;
    const [x, y, w, h] = mark.now;
    for (const [stroke, grow, thick] of /** @type {const} */ ([[theme.paper, 1 + width, width + 2], [hue, 1 + width / 2, width]])) {
      rounded(pen, [x - grow, y - grow, w + 2 * grow, h + 2 * grow], 4, { stroke, thick });
    }
    pen.drawImage(sprite(mark), x, y, w, h);
  }

  /** The token at a point, or the nearest within so many pixels.
   * @param {number} x @param {number} y @param {number} reach @returns {number | null} */
  near(x, y, reach) {
    let best = null;
    let least = reach;
    for (const [token, { at, leaves }] of this.shown) {
      const away = leaves ? reach : distance(x, y, at);
      if (away < least) [best, least] = [token, away];
    }
    return best;
  }
}

/** @param {Lane} lane @param {number} i */
export function lookOf(lane, i) {
  const status = lane.status[i];
  return [
    status >= EVICTED ? 'gone' : 'kept',
    status === NEW || status === NEW_EVICTED ? 'new' : '',
    lane.isProtected[i] ? 'held' : '',
  ].join(' ').trim();
}
