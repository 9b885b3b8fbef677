// Writes the page's address, tells the server where Back and Forward go, keeps this browser's name in a cookie, and
// tells a click from a Tab.
//
// These variables live as long as the window, whichever page it shows and however often the server
// loses its session. Streamlit also listens: it changes pages by itself, but on a visit to the page
// that is shown it only reruns, and nothing distinguishes that run from a late click. Until the
// server has received a visit, the addresses that it sends belong to the view before.

/** @typedef {{ link: { [name: string]: string }, visit: number, session?: string }} Visit */
/** @typedef {{ link?: { [name: string]: string }, entry: number, session: string, received: number }} Data */

let session = /** @type {string | undefined} */ (undefined);
let entry = /** @type {number | undefined} */ (undefined);
/** @type {(name: string, value: Visit | string) => void} */
let tell;
let lost = false, path = '', visits = 0, received = 0;

const embeds = (/** @type {[string, string]} */ [name]) => name === 'embed' || name === 'embed_options';
const parts = () => [...new URLSearchParams(location.search)];

function visit() {
  const link = Object.fromEntries(parts().filter((part) => !embeds(part)));
  visits += 1;
  send({ link, visit: visits, session }, 2000);
}

/** Sends a visit until the server has received it, as a busy server may miss it.
 * @param {Visit} message @param {number} wait in milliseconds */
function send(message, wait) {
  if (message.visit !== visits || message.session !== session || received === visits) return;
  tell('visited', message);
  setTimeout(send, wait, message, 2 * wait);
}

addEventListener('popstate', (event) => {
  if (location.pathname !== path) return;
  event.stopImmediatePropagation();
  visit();
}, true);

addEventListener('pointerdown', () => document.body.classList.add('clicked'), true);
addEventListener('keydown', ({ key }) => { if (key === 'Tab') document.body.classList.remove('clicked'); }, true);

function write(/** @type {Data} */ data) {
  const link = new URLSearchParams([...Object.entries(data.link ?? {}), ...parts().filter(embeds)]);
  const chosen = entry !== undefined && data.entry > entry;
  entry = data.entry;
  if (link.toString() === location.search.slice(1)) return;
  history[chosen ? 'pushState' : 'replaceState']({}, '', `?${link}`);
}

// Popovers are outside the app's element, which alone has the theme's colour scheme. A change of
// theme reruns nothing by itself, so the server is told: it draws charts in the new colours.
const app = /** @type {Element} */ (document.querySelector('.stApp'));
const scheme = () => {
  const { colorScheme } = getComputedStyle(app);
  if (colorScheme !== document.body.style.colorScheme) tell?.('scheme', colorScheme);
  document.body.style.colorScheme = colorScheme;
};
new MutationObserver(scheme).observe(app, { attributeFilter: ['class'] });
scheme();

/** @param {{ data: Data, setStateValue: typeof tell }} component */
export default function ({ data, setStateValue }) {
  path = location.pathname;
  if (!/(^|; )fdkvc=/.test(document.cookie)) {
    document.cookie = `fdkvc=${data.session}; path=/; max-age=31536000; samesite=strict`;
  }
  if (data.session !== session) {
    lost = session !== undefined;
    session = data.session;
    entry = undefined;
    visits = received = data.received;
  }
  received = Math.max(received, data.received);
  if (!data.link) {
    tell = setStateValue;
    if (lost) visit();
    lost = false;
  } else if (!lost && received === visits) {
    write(data);
  }
}
