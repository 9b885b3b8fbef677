// The types that the stage's scripts share: what the server packs (payload.py) and sends, and what they draw.

import type { Dialog } from './record.js';
import type { Stage } from './stage.js';

export type { Cells } from './cells.js';
export type { Marks } from './marks.js';
export type { Dialog, Lane } from './record.js';
export type { River } from './river.js';
export type { Stage } from './stage.js';

// ------------------------------------------------------------------------------ a packed run

export type Column = Float32Array | Uint32Array | Uint8Array;
export type Paint = [fill: string, ink: string];

export interface Packed {
  kind: 'one' | 'lanes' | 'transcript';
  name: string;
  headlines: string[];
  dialog: DialogHead;
  palette: Paint[];
  topicless: Paint;
  lanes: LaneHead[];
  text: DialogText;
  columns: Column[];
}

export interface DialogHead {
  topics: string[];
  current: number[];
  bounds: number[];
  changes: number[];
  names: string[];
  named: number[] | null;
  words: string[];
  spans: [token: number, kind: string][];
}

export interface LaneHead {
  label: string;
  long: boolean;
  budgets: number[];
  pages: number[];
  counts: number[];
  cutoffs: (number | null)[];
  /** With how many decimals the scores of each turn are written. */
  digits: number[];
  terms: Term[];
  /** Of a run that is alone: its states, and a sentence where no score has a history. */
  states: State[];
  origin: string;
  /** Of one of several runs. */
  hued: boolean;
  tint: number;
  places: number;
  note: string;
  figures: [name: string, values: string[]][];
  forks: [lane: number, turn: number] | null;
}

export interface Term { name: string; remembers: boolean; gained: string; shares: { name: string; values: number[] }[] }
export interface State { label: string; low: number; high: number; start: number | null; digits: number; values: (number | null)[] }
export interface Demands { turn: number; source: string; values: [what: string, lost: string[], mentions: number[][]][] }

export interface DialogText {
  speakers: string[];
  turns: [text: string, lengths: number[]][];
  topics: string[];
  needed: number[];
  source: string;
  demands: Demands[];
}

// ------------------------------------------------------------------------------ a lane

/** The entries of a turn, as places in the columns of the lane. */
export interface Turn {
  /** Of a token. */
  at: { get(token: number): number | undefined };
  byAge: number[];
  byScore: number[];
  kept: number[];
  gone: number[];
  /** What the budget ranked, best first, and what the threshold had evicted before. */
  stood: number[];
  stale: number[];
  rank: Map<number, number>;
  contenders: number[];
  /** The protected; the others that the budget kept, and those that it evicted. */
  shielded: number[];
  stayed: number[];
  missed: number[];
  cutoff: number | null;
}

/** What became of an entry, up to a turn. */
export interface Fate {
  fate: 'to come' | 'kept' | 'evicted' | 'absent';
  /** The turn that evicted it. */
  left: number | null;
  /** The turn that decided: of what has gone, the one that evicted it. */
  at: number;
  /** Its place in the columns of that turn. */
  i: number | undefined;
  /** Among all that the budget ranked, the protected too. */
  rank: number | undefined;
  stood: number;
  /** Whether any of these was protected. */
  shielded: boolean;
  rule: '' | 'budget' | 'threshold';
  isProtected: boolean;
}

/** Of a score: what a turn took or gave. */
export interface Part { turn: number; term: number; name: string; value: number; own: boolean }
/** Of one topic by age. */
export interface Neighbours { turn: number; low: number; high: number; hue: number }

// ------------------------------------------------------------------------------ the server

export interface View {
  session: string; received: number; run: string; turn: number; entry: number | null; order: string; hues: string; sentences: string[];
}
export interface Change { label: string; before: string; after: string; share: string; words: string }
export interface Answer { run: string; turn: number; entry: number; done: boolean; words: string; tried: string; changes: Change[] }

export interface Hub {
  view: View | null;
  answer: Answer | null;
  /** A saved file has no server, and its sentences by turn and token. */
  alone: { sentences: { [moment: string]: string[] } } | null;
  tell: { [what: string]: (message: object) => void };
  changed: (what: string) => void;
}

// ------------------------------------------------------------------------------ drawing

export type Pen = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;
export interface Surface { pen: CanvasRenderingContext2D; width: number; height: number }
export type Point = [x: number, y: number];
/** x, y, width, height, opacity, and what else a view draws of a mark. */
export type At = number[];
export interface Target { at: At; hue: number; look: string; dialog: Dialog }
export interface Mark extends Target { now: At; start: At; leaves?: boolean }

/** What is shown: a turn, how it is ordered, and whether marks glide to it. */
export interface Shown { turn: number; order: string; glide: boolean }

/** A view of the run on a canvas of its own. */
export interface Chart {
  /** Measures its box. */
  layOut(): void;
  show?(shown: Shown): void;
  /** Draws what follows the pointer. */
  point?(turn: number, token: number | null): void;
  /** Draws what moves; returns whether any still does. */
  paint?(moment: number, hover: number | null, chosen: number | null): boolean;
}

/** What a stage shows of a packed run. */
export interface Scene {
  dialog: Dialog;
  /** Of a picture. */
  title?: string;
  /** Whether it pauses when something else on the page is used. */
  rests?: boolean;
  layOut(): void;
  show(shown: Shown): void;
  point(turn: number, token: number | null): void;
  paint?(moment: number): boolean;
  /** Draws again what stands beside the entries. */
  draw?(): void;
  /** Names the entries for screen readers. */
  name(): void;
  /** Computes what a turn beside the shown one needs. */
  prepare(turn: number): void;
  /** Names the entry that is pointed at. */
  activate(): void;
  /** Learns that another entry is selected. */
  settled?(): void;
}

export type Scenes = { [kind in Packed['kind']]: new (stage: Stage, run: Packed) => Scene };
/** Its hues are 'topic' or 'kind', or 'auto' before a person has chosen. */
export interface Standing { turn: number; entry: number | null; order: string; hues: string }
