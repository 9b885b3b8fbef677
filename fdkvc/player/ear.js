import { hub } from './hub.js';

const AT_REST = '[data-testid=stApp][data-test-script-state=notRunning]';
const LEAVING = 1000; // milliseconds after which the app runs, if a link leads to another page
const AGAIN = 30; // milliseconds until a message that waits is tried again

let left = -LEAVING; // when a link was last followed
const leave = () => { left = performance.now(); };
addEventListener('popstate', leave);
addEventListener('click', ({ target }) => { if (target instanceof Element && target.closest('a')) leave(); }, true);

const waiting = /** @type {{ [what: string]: ReturnType<typeof setTimeout> }} */ ({});

/** Passes messages between the server and the stage.
 * A message waits while the app runs or a link has just been followed: while another page is opening,
 * Streamlit would run a fragment of this one, and the browser would show nothing. Only the newest
 * waiting message is sent.
 * @param {{ data: any, setStateValue: (name: string, value: object) => void }} component */
export function mount({ data, setStateValue }) {
  const { what } = data;
  const shared = /** @type {any} */ (hub);
  // Streamlit may draw an ear of an earlier run again before it removes it.
  if (shared[what]?.sent > data.sent) return () => {};
  shared[what] = data;
  const tell = (/** @type {object} */ message) => {
    clearTimeout(waiting[what]);
    if (document.querySelector(AT_REST) && performance.now() - left > LEAVING) setStateValue('message', message);
    else waiting[what] = setTimeout(() => tell(message), AGAIN);
  };
  hub.tell[what] = tell;
  hub.changed(what);
  return () => clearTimeout(waiting[what]);
}
