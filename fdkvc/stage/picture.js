// The stage as it stands, as one picture: its canvases with more pixels, and the boxes and words
// around them where the page has put them. What is only there to be pressed is left out.

import { make } from './dom.js';
import { rounded, theme, words } from './marks.js';

export const PICTURE_PIXELS = 3; // to the unit
const PRESSED = 'button, input, select, .order, .options, .sr-only';
const MARGIN = 12;

/** Draws parts of a page, which stand below one another, under a line of words.
 * @param {string} title @param {Element[]} parts */
export function pictureOf(title, ...parts) {
  const boxes = parts.map((part) => part.getBoundingClientRect());
  const left = Math.min(...boxes.map((box) => box.left)) - MARGIN;
  const top = Math.min(...boxes.map((box) => box.top)) - (title ? 2 : 1) * MARGIN;
  const width = Math.max(...boxes.map((box) => box.right)) + MARGIN - left;
  const height = Math.max(...boxes.map((box) => box.bottom)) + MARGIN - top;
  const [wide, high] = [width, height].map((size) => Math.round(size * PICTURE_PIXELS));
  const canvas = make('canvas', { width: wide, height: high });
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  pen.scale(PICTURE_PIXELS, PICTURE_PIXELS);
  pen.fillStyle = theme.paper;
  pen.fillRect(0, 0, width, height);
  words(pen, title, MARGIN, MARGIN + 10, { size: 16, bold: true, fill: theme.ink });
  pen.translate(-left, -top);
  for (const part of parts) paintElement(pen, part);
  return canvas;
}

/** @param {HTMLCanvasElement} canvas @param {string} name */
export function savePicture(canvas, name) {
  canvas.toBlob((blob) => {
    const link = make('a', { href: URL.createObjectURL(/** @type {Blob} */ (blob)), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

/** @param {CanvasRenderingContext2D} pen @param {Element} element */
function paintElement(pen, element) {
  if (element.matches(PRESSED) || !element.checkVisibility()) return;
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  pen.save();
  pen.globalAlpha *= Number(style.opacity);
  paintBox(pen, box, style);
  if (style.overflowY === 'auto') {
    pen.beginPath();
    pen.rect(box.x, box.y, box.width, box.height);
    pen.clip();
  }
  if (element instanceof HTMLCanvasElement) pen.drawImage(element, box.x, box.y, box.width, box.height);
  for (const child of element.childNodes) {
    if (child instanceof Element) paintElement(pen, child);
    else if (child instanceof Text) paintText(pen, child, style);
  }
  pen.restore();
}

/** @param {CanvasRenderingContext2D} pen @param {DOMRect} box @param {CSSStyleDeclaration} style */
function paintBox(pen, { x, y, width, height }, style) {
  const radius = parseFloat(style.borderTopLeftRadius) || 0;
  rounded(pen, [x, y, width, height], radius, { fill: style.backgroundColor });
  const [top, bottom, left] = [style.borderTopWidth, style.borderBottomWidth, style.borderLeftWidth].map(parseFloat);
  if (left && top) { // a frame
    const dash = style.borderLeftStyle === 'dashed' ? [3, 2] : [];
    rounded(pen, [x + left / 2, y + left / 2, width - left, height - left], radius, { stroke: style.borderLeftColor, thick: left, dash });
  } else {
    rounded(pen, [x, y, left, height], 0, { fill: style.borderLeftColor });
    rounded(pen, [x, y, width, top], 0, { fill: style.borderTopColor });
    rounded(pen, [x, y + height - bottom, width, bottom], 0, { fill: style.borderBottomColor });
  }
}

/** @param {CanvasRenderingContext2D} pen @param {Text} text @param {CSSStyleDeclaration} style */
function paintText(pen, text, style) {
  pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.fillStyle = style.color;
  pen.textAlign = 'left';
  pen.textBaseline = 'alphabetic';
  const range = document.createRange();
  for (const { 0: word, index } of text.data.matchAll(/\S+/g)) {
    range.setStart(text, index);
    range.setEnd(text, index + word.length);
    const [box] = range.getClientRects();
    if (!box) continue;
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = pen.measureText(word);
    pen.fillText(word, box.x, box.y + (box.height + up - down) / 2, box.width);
  }
}
