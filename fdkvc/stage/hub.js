// @ts-check
// What the stage and its listeners know of each other: each is a script of its own, they come to the
// page in any order, and Streamlit may draw any of them anew.

/**
 * @typedef {{ session: string, heard: number, run: string, turn: number, entry: number | null, order: string, sentences: string[] }} View
 * @typedef {{ label: string, before: string, after: string, share: string, words: string, exhaustive: boolean }} Change
 * @typedef {{ run: string, turn: number, entry: number, done: boolean, words?: string, changes: Change[] }} Answer
 * @typedef {{ [what: string]: (said: object) => void }} Tell
 */

/**
 * In a file there is no server to be told or asked: `alone` is what it had told before.
 * @type {{ view: View | null, answer: Answer | null, alone: { told: { [moment: string]: string[] } } | null, tell: Tell, changed: (what: string) => void }}
 */
export const hub = (/** @type {any} */ (globalThis).fdkvcStage ??= { view: null, answer: null, alone: null, tell: {}, changed: () => {} });
