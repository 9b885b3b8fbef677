"""The stage: a recorded run that the browser steps through by itself.

`run` builds a run and its tables, `payload` packs them once for the browser, `moments` finds where
they are worth looking at, and `drawn` bundles the scripts and the style. The scripts are ES modules
in this folder: no build step, and no other package.

- `record.js` unpacks a run, and `long.js` a long one, of which it knows only when each token was
  cached; `numbers.js` writes numbers as `fdkvc.words` does; `explain.js` says why an entry stays or
  goes. None of them needs a page.
- `marks.js` and `views.js` draw on canvases, `picture.js` a whole stage as PNG, `dom.js` elements.
- `stage.js` is the transport above a scene: which turn and entry are shown, and what the server
  receives. A scene is `one.js`, `lanes.js` or `transcript.js`; `why.js` and `why_lanes.js` are
  their panels, `entries.js` names entries and listens. `ear.js` passes messages to the server.
"""
