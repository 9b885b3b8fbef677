// @ts-check
// The first HTML of a stage: the transport above its frame, and the panels of a run that is alone.

export const STAGE = `
<div class="stage" hidden>
  <div class="bar" role="group" aria-label="Turns">
    <div class="buttons">
      <button data-go="first" aria-label="First" title="First turn (Home)"><svg viewBox="0 0 20 20"><path d="M5 4v12M15 4l-7 6 7 6z"/></svg></button>
      <button data-go="back" aria-label="Back" title="Previous turn (←)"><svg viewBox="0 0 20 20"><path d="M13 4l-7 6 7 6z"/></svg></button>
      <button data-go="play" aria-label="Play" title="Play or pause (P)" class="main"><svg viewBox="0 0 20 20"><path class="plays" d="M6 3.5v13l10-6.5z"/><path class="pauses" d="M6.5 4v12M13.5 4v12"/></svg></button>
      <button data-go="next" aria-label="Next" title="Next turn (→)"><svg viewBox="0 0 20 20"><path d="M7 4l7 6-7 6z"/></svg></button>
      <button data-go="last" aria-label="Last" title="Last turn (End)"><svg viewBox="0 0 20 20"><path d="M15 4v12M5 4l7 6-7 6z"/></svg></button>
    </div>
    <div class="scrub">
      <div class="turns" aria-hidden="true"></div>
      <i class="here"></i>
      <input type="range" min="0" step="1" aria-label="Turn">
    </div>
    <span class="where"></span>
    <div class="buttons">
      <button data-go="before" aria-label="Previous topic change" title="Previous topic change ( [ )"><svg viewBox="0 0 20 20"><path d="M4.5 10h11M8.5 6l-4 4 4 4"/><path d="M15.5 4v12" stroke-dasharray="2 2"/></svg></button>
      <button data-go="ahead" aria-label="Next topic change" title="Next topic change ( ] )"><svg viewBox="0 0 20 20"><path d="M4.5 10h11M11.5 6l4 4-4 4"/><path d="M4.5 4v12" stroke-dasharray="2 2"/></svg></button>
    </div>
    <select class="speed" aria-label="Speed">
      <option value="1">1 turn a second</option>
      <option value="2">2 turns a second</option>
      <option value="5">5 turns a second</option>
      <option value="10">10 turns a second</option>
    </select>
    <select class="hues" aria-label="Colour of entries" hidden>
      <option value="topic">by topic</option>
      <option value="kind">by kind of span</option>
    </select>
    <div class="buttons">
      <button data-go="picture" aria-label="Save as picture" title="Save this moment as a picture (PNG)"><svg viewBox="0 0 20 20"><path d="M3 6.5h3.5l1.2-2h4.6l1.2 2H17v9.5H3z"/><circle cx="10" cy="11" r="2.8"/></svg></button>
    </div>
  </div>
  <p class="headline" role="status"></p>
  <div class="key kinds" hidden></div>
  <div class="frame"></div>
</div>
`;

export const PANELS = `
<section class="panel past">
  <h2>Cache river <small>entries kept after each turn, oldest at the bottom</small></h2>
  <div class="plot river" role="img"><canvas class="base"></canvas><canvas class="over"></canvas></div>
  <div class="states"></div>
</section>
<section class="panel now">
  <h2><span class="kept-title"></span>
    <span class="order" role="radiogroup" aria-label="Order of cells">
      <button role="radio" data-order="age">by age</button><button role="radio" data-order="score">by score</button>
    </span>
  </h2>
  <div class="plot cells" role="listbox" tabindex="0" aria-label="Entries of this turn">
    <canvas></canvas><div class="gone-title"></div><div class="options" role="none"></div>
  </div>
  <div class="key"><span><i class="is-new"></i>new in this turn</span><span><i class="is-held"></i>protected</span><span><i class="is-gone"></i>evicted</span><span class="of-pages" hidden><i class="is-page"></i><b></b></span><span class="of-pages" hidden><i class="is-empty"></i>an empty slot</span></div>
</section>
<section class="panel decision">
  <h2>The decision <small class="decision-title"></small></h2>
  <div class="plot scores" role="img"><canvas></canvas></div>
</section>
<section class="panel why" aria-label="Why"></section>
`;
