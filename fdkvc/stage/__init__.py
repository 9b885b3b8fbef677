"""The stage: a recorded run that the browser steps through by itself.

`run` builds a run and its tables, `payload` packs them once for the browser, `moments` finds where
they are worth looking at, and `drawn` has the style and the scripts that `npm run build` bundled of
the ES modules in this folder. `types.d.ts` has the types that they share, which are global.

- `record.js` unpacks a run, and `long.js` a long one, of which it knows only when each token was
  cached; `numbers.js` writes numbers as `fdkvc.words` does; `fate.js` says why an entry stays or
  goes. None of them needs a page.
- `marks.js` and the charts draw on canvases, `dom.js` makes elements.
- `stage.js` is the transport above a scene: which turn and entry are shown, and what the server
  receives. A scene is `one.js`, `lanes.js` or `transcript.js`; `why.js` and `why_lanes.js` are
  their panels, `entries.js` names entries and listens. `ear.js` passes messages to the server.
"""
