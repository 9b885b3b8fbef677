// The entries of a turn for screen readers, and what pointer and keys do with them.

import { make, one } from './dom.js';
import { entryName } from './fate.js';

/** Names each entry where its tile is, so that touch finds it, too; and marks the one that the pointer
 * or the keys have reached.
 * @param {Stage} stage @param {HTMLElement} list @param {Cells} cells @param {string} prefix */
export function nameOptions(stage, list, cells, prefix) {
  const { turn, entry } = stage.state;
  const options = one(list, '.options');
  const active = stage.hover ?? entry ?? cells.order[0];
  // Where a cell shows several entries, only the one that is pointed at is named.
  const named = cells.grid.group === 1 ? cells.order : [cells.cellOf(active)].filter((token) => cells.order.includes(token));
  while (options.children.length < named.length) options.append(make('div', { role: 'option' }));
  while (options.children.length > named.length) options.lastChild.remove();
  named.forEach((token, place) => {
    const option = options.children[place];
    const [x, y, width, height] = cells.place(token);
    option.id = `${prefix}-${token}`;
    option.style.cssText = `left:${x}px;top:${y}px;width:${width}px;height:${height}px`;
    const many = cells.members.get(token)?.length ?? 1;
    option.setAttribute('aria-label', `${many > 1 ? `${many} entries from ` : ''}${entryName(cells.lane, turn, token)}`);
    option.setAttribute('aria-selected', token === entry);
  });
  options.dataset.turn = turn;
  activateOption(stage, list, cells, prefix);
}

/** @param {Stage} stage @param {HTMLElement} list @param {Cells} cells @param {string} prefix */
export function activateOption(stage, list, { lane }, prefix) {
  const token = stage.hover ?? stage.state.entry;
  if (token !== null && lane.find(stage.state.turn, token) !== undefined) list.setAttribute('aria-activedescendant', `${prefix}-${token}`);
  else list.removeAttribute('aria-activedescendant');
}

/** Follows the mouse and clicks in a box.
 * @param {Stage} stage @param {HTMLElement} box @param {(event: MouseEvent) => number | null} find
 * @param {(event: MouseEvent) => void} click */
export function listenToPointer(stage, box, find, click) {
  box.addEventListener('pointermove', (event) => { if (event.pointerType === 'mouse') stage.look(find(event)); });
  box.addEventListener('pointerleave', () => stage.look(null));
  box.addEventListener('click', click);
}

/** @param {MouseEvent} event @param {HTMLElement} box @returns {[x: number, y: number]} */
function inside(event, box) {
  const { left, top } = box.getBoundingClientRect();
  return [event.clientX - left, event.clientY - top];
}

/** @param {Stage} stage @param {HTMLElement} box @param {Marks} marks @param {number} reach */
export function listenToMarks(stage, box, marks, reach) {
  const find = (/** @type {MouseEvent} */ event) => marks.near(...inside(event, box), reach);
  listenToPointer(stage, box, find, (event) => {
    const hit = find(event);
    if (hit !== null) stage.choose(hit);
  });
}

/** @param {Stage} stage @param {HTMLElement} box @param {River} river */
export function listenToRiver(stage, box, river) {
  listenToPointer(stage, box, (event) => river.at(...inside(event, box)).token, (event) => {
    const { turn, token } = river.at(...inside(event, box));
    stage.hover = null;
    stage.pause();
    stage.go(turn, token ?? stage.state.entry);
    stage.scene?.settled?.();
  });
}

/** A click does not move the focus: the keys still step through the turns; Tab brings them to the entries.
 * @param {Stage} stage @param {HTMLElement} box
 * @param {(token: number | null, key: string) => number | null} beside */
export function listenToKeys(stage, box, beside) {
  box.addEventListener('mousedown', (event) => event.preventDefault());
  box.addEventListener('keydown', (event) => {
    if (/^(Arrow|Home$|End$)/.test(event.key)) {
      stage.look(beside(stage.hover ?? stage.state.entry, event.key));
    } else if ((event.key === 'Enter' || event.key === ' ') && stage.hover !== null) {
      stage.choose(stage.hover);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  box.addEventListener('blur', () => stage.look(null));
}
