"""The stage: a recorded run that the browser steps through by itself.

`run` builds a run and its tables, `payload` packs them once for the browser, `moments` finds where
they are worth looking at, and `drawn` bundles the scripts and the style. The scripts are ES modules
in this folder: no build step, and no other package.

- `record.js` unpacks a run and answers what is asked of a turn; `numbers.js` writes numbers as
  `fdkvc.words` does; `explain.js` says why an entry stays or goes. None of them needs a page.
- `marks.js` and `views.js` draw on canvases, `picture.js` a whole stage as PNG, `dom.js` elements.
- `stage.js` is the transport above a scene: which turn and entry are shown, and what the server
  hears. A scene is `one.js`, `lanes.js` or `transcript.js`; `why.js` and `why_lanes.js` are their
  panels, `entries.js` names entries and listens. `ear.js` speaks to the stage for the server.
"""
