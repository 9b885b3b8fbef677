// What the stage and its listeners know of each other: each is a module of its own, they come to
// the page in any order, and Streamlit may draw any of them anew. In a file there is no server to be
// told or asked: `alone` is what it had told before.
const hub = (globalThis.fdkvcStage ??= { view: null, answer: null, alone: null, tell: {}, changed: () => {} });
