// Hears what the server says of the view, and lets the stage speak to the server.
export default function ({ data, setStateValue }) {
  hub[data.what] = data;
  hub.tell[data.what] = (said) => setStateValue('said', said);
  hub.changed(data.what);
}
