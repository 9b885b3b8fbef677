// What `sessions.py` and `stage_latency.py` time in the page. All times are in milliseconds.

/** Time from a click on the button for another dialog to the first frame with another run. */
const timeAnotherDialog = () => new Promise((done) => {
  const stage = document.querySelector('.stage'), before = stage.dataset.run;
  const begun = performance.now();
  const look = () => {
    if (stage.dataset.run !== before) done(performance.now() - begun);
    else requestAnimationFrame(look);
  };
  document.querySelector('[class*="another"] button').click();
  look();
});

const press = (key) => document.body.dispatchEvent(
  new KeyboardEvent('keydown', { key, bubbles: true }));

const frame = () => new Promise((done) => requestAnimationFrame(() => {
  const after = new MessageChannel();
  after.port1.onmessage = done;
  after.port2.postMessage(0);
}));

/** Times from each key to the end of the frame that shows it; half of them after a rest. */
const timeKeys = async (count) => {
  const where = document.querySelector('.stage .where'), times = [];
  let way = 'ArrowRight';
  for (let i = 0; i < count; i += 1) {
    await new Promise((done) => setTimeout(done, i % 2 ? 60 + Math.random() * 16 : 400));
    const [at, last] = where.textContent.split(' of ').map(Number);
    if (at === last) way = 'ArrowLeft';
    if (at === 0) way = 'ArrowRight';
    const begun = performance.now();
    press(way);
    await frame();
    times.push(performance.now() - begun);
    if (where.textContent.startsWith(`${at} `)) throw new Error('the stage did not step');
  }
  return times;
};

/** Times between the turns of a play at ten a second. */
const timePlay = async (turns) => {
  const where = document.querySelector('.stage .where'), times = [];
  press('Home');
  document.querySelector('.stage .speed').value = '10';
  await new Promise((done) => setTimeout(done, 1000));
  await new Promise((done) => {
    new MutationObserver(() => {
      times.push(performance.now());
      if (where.textContent.startsWith(`${turns} `)) done();
    }).observe(where, { childList: true, characterData: true, subtree: true });
    press('p');
  });
  return times.slice(1).map((time, i) => time - times[i]);
};

/** Keep the time from a key to the next run drawn in `window.drawn`. */
const watchRuns = () => {
  window.pressed = 0;
  addEventListener('keydown', () => { window.pressed = performance.now(); }, true);
  const root = document.querySelector('.stage');
  new MutationObserver(() => requestAnimationFrame(() => {
    window.drawn = performance.now() - window.pressed;
  })).observe(root, { attributes: true, attributeFilter: ['data-run'] });
};
