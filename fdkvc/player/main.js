// The entry point of a stage: draws a run in an element, and another one when called again.

import { one } from './dom.js';
import { hub } from './hub.js';
import STAGE from './stage.html';
import { Stage } from './stage.js';

const KEYS = /** @type {{ [key: string]: string }} */ ({
  ArrowLeft: 'back', ArrowRight: 'next', Home: 'first', End: 'last', p: 'play', P: 'play', '[': 'before', ']': 'ahead',
});
const TYPES = 'input:not([type=range]), textarea, select, [contenteditable], [role=combobox], [role=tab], [role=radiogroup] input';

let current = /** @type {Stage | null} */ (null);
const shown = () => (current?.scene && current.root.isConnected ? current : null);

function pressed(/** @type {any} */ event) {
  const stage = shown();
  if (!stage || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(TYPES)) return;
  if (event.key === 'Escape' && stage.state.entry !== null) stage.choose(null);
  const name = KEYS[event.key];
  if (!name) return;
  event.preventDefault();
  stage.act(name);
}

document.addEventListener('keydown', pressed);
document.addEventListener('focusin', (/** @type {any} */ { target }) => {
  const stage = shown(); // controls around several lanes act on the turn shown, so playing stops
  if (stage?.run?.kind !== 'one' && !stage?.root.contains(target)) stage?.pause();
});

// What a phrase of the page names: an entry, or a part of the stage.
for (const [event, on] of /** @type {const} */ ([['pointerover', true], ['focusin', true], ['pointerout', false], ['focusout', false]])) {
  document.addEventListener(event, (/** @type {any} */ { target }) => {
    const name = target.closest?.('[data-lights]')?.dataset.lights;
    if (/^\d/.test(name)) shown()?.look(on ? Number(name) : null);
    else if (name) shown()?.part(`.${name}`)?.classList.toggle('lit', on);
  });
}

/** @param {{ data: Uint8Array<ArrayBuffer>, parentElement: Element }} component */
export function mount({ data, parentElement }) {
  if (!one(parentElement, '.stage')) parentElement.insertAdjacentHTML('beforeend', STAGE);
  const root = one(parentElement, '.stage');
  if (current?.root !== root) {
    const stage = new Stage(root);
    current = stage;
    hub.changed = (what) => (what === 'view' ? stage.looked() : stage.point());
    hub.answer = null;
  }
  if (root.given !== data) current?.take(data);
  root.given = data;
}
