// Prints as JSON what the stage's modules make of packed runs: `node look.js FILE …`, in order.

import { readFileSync } from 'node:fs';
import { comparison, entryName, fateOf, fateOfValue, rivalOf } from '../../fdkvc/player/fate.js';
import { number, signed } from '../../fdkvc/player/numbers.js';
import { lanesOf } from '../../fdkvc/player/long.js';
import { Dialog, Lane, unpack } from '../../fdkvc/player/record.js';

// Of each token that has come: what became of it, and the numbers that say why.
function seen(lane, turn) {
  const { born } = lane.dialog;
  return [...born.keys()].filter((token) => born[token] <= turn).map((token) => {
    const fate = fateOf(lane, turn, token);
    const value = fateOfValue(lane, turn, token);
    if (fate.i === undefined) return { fate, value };
    const rival = rivalOf(lane, fate);
    return {
      fate,
      value,
      name: fate.at === turn ? entryName(lane, turn, token) : null,
      rival: rival === undefined ? null : lane.token[rival],
      rows: comparison(lane, fate, rival),
      course: lane.terms.length && fate.rule !== 'threshold' ? lane.course(fate.at, token) : null,
      path: lane.path(token),
    };
  });
}

const every = (turns, see) => [...Array(turns).keys()].map(see);

async function look(file) {
  const packed = await unpack(readFileSync(file));
  const several = packed.kind !== 'one';
  const dialog = new Dialog(packed.dialog, packed.palette, packed.topicless);
  const lanes = several ? lanesOf(packed) : [new Lane(packed.lanes[0], packed.columns, dialog)];
  const { turns } = dialog;
  return {
    headlines: packed.headlines,
    paint: every(20, (hue) => dialog.paint(hue - 1)),
    lanes: lanes.map((lane) => ({
      river: lane.river(),
      paged: every(turns, (turn) => lane.paged(turn)),
      turns: every(turns, (turn) => seen(lane, turn)),
    })),
  };
}

const numbers = (pairs) => pairs.map(([one, other]) => [number(one), signed(one, other)]);

const [what, ...files] = process.argv.slice(2);
const found = what === 'numbers' ? numbers(JSON.parse(readFileSync(files[0], 'utf-8'))) : await Promise.all(files.map(look));
process.stdout.write(JSON.stringify(found));
