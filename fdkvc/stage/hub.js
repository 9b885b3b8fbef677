// @ts-check
// What the stage and its listeners share: each is its own script, they load in any order, and
// Streamlit may redraw any of them.

/**
 * @typedef {{ session: string, received: number, run: string, turn: number, entry: number | null, order: string, hues: string, sentences: string[] }} View
 * @typedef {{ label: string, before: string, after: string, share: string, words: string }} Change
 * @typedef {{ run: string, turn: number, entry: number, done: boolean, words: string, tried: string, changes: Change[] }} Answer
 * @typedef {{ [what: string]: (message: object) => void }} Tell
 */

/** A saved file has no server: `alone` has its sentences by turn and token.
 * @type {{ view: View | null, answer: Answer | null, alone: { sentences: { [moment: string]: string[] } } | null, tell: Tell, changed: (what: string) => void }} */
export const hub = (/** @type {any} */ (globalThis).fdkvcStage ??= { view: null, answer: null, alone: null, tell: {}, changed: () => {} });
