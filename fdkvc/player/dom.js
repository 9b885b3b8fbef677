// Elements of the page. Whatever a file or a link says becomes text, never markup.

/** Makes an element with attributes and children; what is null is left out.
 * @template {keyof HTMLElementTagNameMap} Tag @param {Tag} tag
 * @param {{ [name: string]: string | number | null | undefined }} options
 * @param {(Node | string | null)[]} children @returns {HTMLElementTagNameMap[Tag]} */
export function make(tag, options = {}, ...children) {
  const { className, ...rest } = options;
  const element = document.createElement(tag);
  if (className) element.className = `${className}`;
  for (const [name, value] of Object.entries(rest)) {
    if (value !== null && value !== undefined) element.setAttribute(name, `${value}`);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The one element within another that a selector names.
 * @param {ParentNode} root @param {string} selector
 * @returns {any} an element of the kind that the selector says */
export const one = (root, selector) => root.querySelector(selector);

/** A topic's letter on its colour. @param {Dialog} dialog @param {number} hue */
export function tile(dialog, hue, extra = '') {
  const { fill, ink, hatched } = dialog.paint(hue);
  const element = make('i', { className: `tile ${extra} ${hatched ? 'hatched' : ''}`, 'aria-hidden': 'true' }, dialog.letter(hue));
  element.style.background = fill;
  element.style.color = ink;
  return element;
}
