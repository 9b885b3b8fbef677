// @ts-check
import { hub } from './hub.js';

/**
 * Hears what the server says of the view, and lets the stage speak to the server.
 * @param {{ data: any, setStateValue: (name: string, value: object) => void }} component
 */
export function mount({ data, setStateValue }) {
  const heard = /** @type {any} */ (hub);
  heard[data.what] = data;
  hub.tell[data.what] = (said) => setStateValue('said', said);
  hub.changed(data.what);
}
