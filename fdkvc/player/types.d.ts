// The types that the stage's scripts share: what the server packs (payload.py) and sends, and what they draw.

type Dialog = import('./record.js').Dialog;
type Lane = import('./record.js').Lane;
type Turn = ReturnType<Lane['turn']>;
type Fate = ReturnType<typeof import('./fate.js').fateOf>;
type Stage = import('./stage.js').Stage;
type Cells = import('./cells.js').Cells;
type Marks = import('./marks.js').Marks;
type River = import('./river.js').River;

declare module '*.html';

type Column = Float32Array | Uint32Array | Uint8Array;
type Paint = [fill: string, ink: string];

interface Packed {
  kind: 'one' | 'lanes' | 'transcript';
  name: string;
  headlines: string[];
  shows: string; // of a run that is alone: the panels that are shown, or all
  before: string; // what the second lane is called, if there is one: the run before
  alike: boolean; // whether it is of the same dialog
  scaled: boolean; // whether its scores have the same scale
  dialog: DialogHead;
  palette: Paint[];
  topicless: Paint;
  lanes: LaneHead[];
  text: DialogText;
  columns: Column[];
}

interface DialogHead {
  topics: string[];
  titles: string[]; // of topics that are letters, in words
  current: number[];
  bounds: number[];
  changes: number[];
  names: string[];
  named: number[] | null;
  words: string[];
  values: [text: string, tokens: number[]][]; // each value that is needed later, with its tokens where it is said
  needed: [token: number, text: string][]; // the value that each token in a mention is part of
  spans: [token: number, kind: string][];
}

interface LaneHead {
  label: string;
  long: boolean;
  deciding: [token: number, changes: [turn: number, decides: number][]][];
  budgets: number[];
  pages: number[];
  counts: number[];
  cutoffs: (number | null)[];
  digits: number[]; // with how many decimals the scores of each turn are written
  terms: Term[];
  lines: Line[]; // what it measures
  origin: string; // of a run that is alone: a sentence where no score has a history
  hued: boolean; // of one of several runs
  tint: number;
  shape: string; // the path of its sign
  places: number;
  note: string;
  figures: [name: string, values: string[]][];
}

interface Term { name: string; remembers: boolean; gained: string; shares: { name: string; values: number[] }[] }
interface Course { lines: Line[]; called?: string; dash?: number[]; tint?: number; shape?: string }
interface Line { label: string; low: number; high: number; start: number | null; percent: boolean; digits: number; values: (number | null)[] }
interface Demands { turn: number; source: string; values: [what: string, lost: string[], token: number][] }

interface DialogText {
  speakers: string[];
  turns: [text: string, lengths: number[]][];
  needed_tokens: number[];
  underlined: number; // the lane whose words are underlined at first
  source: string;
  demands: Demands[];
}

/** Of a score: what a turn took or gave. */
interface Part { turn: number; term: number; name: string; value: number; gained: boolean }
/** Of one topic by age. */
interface Neighbours { turn: number; low: number; high: number; hue: number }

interface Standing { turn: number; entry: number | null }
interface View extends Standing { session: string; received: number; run: string; sentences: string[] }
interface Change { label: string; before: string; after: string; words: string }
interface Answer { run: string; turn: number; entry: number; done: boolean; words: string; tried: string; changes: Change[] }

interface Hub {
  view: View | null;
  answer: Answer | null;
  alone: { sentences: { [moment: string]: string[] } } | null; // a saved file has no server, and its sentences by turn and token
  tell: { [what: string]: (message: object) => void };
  changed: (what: string) => void;
}

type Pen = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;
interface Surface { pen: CanvasRenderingContext2D; width: number; height: number }
type Point = [x: number, y: number];
/** x, y, width, height, opacity, and what else a view draws of a mark. */
type At = number[];
interface Target { at: At; hue: number; look: string; dialog: Dialog; text: string }
interface Mark extends Target { now: At; start: At; leaves?: boolean }

/** What is shown: a turn, and whether marks glide to it. */
interface Shown { turn: number; glide: boolean }

/** A view of the run on a canvas of its own. */
interface Chart {
  layOut(): void; // measures its box
  show?(shown: Shown): void;
  point?(turn: number, token: number | null): void; // draws what follows the pointer
  paint?(moment: number, hover: number | null, chosen: number | null): boolean; // draws what moves; returns whether any still does
}

/** What a stage shows of a packed run. */
interface Scene {
  dialog: Dialog;
  layOut(): void;
  show(shown: Shown): void;
  point(turn: number, token: number | null): void;
  paint?(moment: number): boolean;
  name(): void; // names the entries for screen readers
  lanes: Lane[];
  prepare?(turn: number): void; // makes ready a turn beside the shown one
  activate(): void; // names the entry that is pointed at
  settled?(): void; // learns that another entry is selected
}
