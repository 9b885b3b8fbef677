// What the stage and its listeners know of each other: each is a module of its own, they come to
// the page in any order, and Streamlit may draw any of them anew.
const hub = (globalThis.fdkvcStage ??= { view: null, answer: null, tell: {}, changed: () => {} });
