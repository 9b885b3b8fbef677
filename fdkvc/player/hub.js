// What the stage and its listeners share: each is its own script, they load in any order, and
// Streamlit may redraw any of them.

/** @type {Hub} */
export const hub = (/** @type {any} */ (globalThis).fdkvcStage ??= { view: null, answer: null, alone: null, tell: {}, changed: () => {} });
