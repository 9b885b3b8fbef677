"""What the stage's scripts make of a run is what Python makes of it; node runs them.

`look.js` prints what the modules make of runs that are packed as for the browser.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.charts.theme import TOPICLESS, TOPICS, letter_ink
from fdkvc.conversations.page.files import shipped_file
from fdkvc.core.words import AS_TYPED, contrast, gap, minus, number
from fdkvc.engine.long import simulate_long
from fdkvc.engine.trace import Rule, Status
from fdkvc.explain.decisions import explain, turn_view
from fdkvc.player.drawn import script
from fdkvc.player.moments import Spoken
from fdkvc.player.payload import LaneHead, pack, pack_lanes
from fdkvc.player.run import DialogChoice, StageRun, build_run
from fdkvc.policies import PAPER_POLICIES, POLICIES, read_policy
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.command_line import ROOT, ended
from tests.policies.test_contract import BUDGET, OPTIONS, SMALL

LOOK = Path(__file__).parent / "look.js"
BUNDLES = ROOT / "fdkvc" / "player" / "bundle"
REQUIRED = os.environ.get("FDKVC_REQUIRE_NODE") == "1"
NO_NODE = "node is not installed: get it with `apt-get install nodejs`"

Look = Callable[..., Any]


@pytest.fixture(scope="module")
def node() -> str:
    """Return where node is; without it, the tests of the scripts are not run."""
    node = shutil.which("node")
    return node or (pytest.fail if REQUIRED else pytest.skip)(NO_NODE)


@pytest.fixture(scope="module")
def look(node: str) -> Look:
    def run(*arguments: object) -> Any:
        done = ended(node, LOOK, *map(str, arguments))
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    return run


def run_of(name: str, budget: int = BUDGET) -> StageRun:
    dialog = DialogChoice(SCENARIOS["mixed"], 1, SMALL)
    return build_run(dialog, read_policy(name), budget)


FEW = (*PAPER_POLICIES, "full", "surprisal", "fastgen", *OPTIONS[:3], "blocks(fd-kvc, size=4)")
"""Policies of every kind of column and rule; the others are among the long tests."""

every_run = pytest.mark.parametrize(
    "name",
    [
        name if name in FEW else pytest.param(name, marks=pytest.mark.long)
        for name in (*POLICIES, *OPTIONS)
    ],
)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Mapping[str, StageRun]:
    """Return a run of every policy, and of those whose turn takes other steps."""
    names = (*POLICIES, *OPTIONS) if request.config.getoption("--long") else FEW
    return {name: run_of(name) for name in names}


@pytest.fixture(scope="module")
def seen(look: Look, runs: Mapping[str, StageRun], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the scripts say of each of these runs."""
    files = []
    for place, run in enumerate(runs.values()):
        files.append(tmp_path_factory.getbasetemp() / f"{place}.packed")
        files[-1].write_bytes(pack(run, "run"))
    return dict(zip(runs, look("runs", *files), strict=True))


def test_numbers_are_written_as_python_writes_them(look: Look, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    halves = [odd / 2**power for power in range(1, 12) for odd in range(1, 40, 2)]
    tiny = [4e-7, 4.5e-7, 2.5e-6, 0.00045, 0.00049, 0.0005, 9.6e-5, 1e-12, 2.0**-149]
    large = [0.0, 1.0, 56.0, 123456.5, 2.0**60, 999.9996]
    drawn = (rng.standard_normal(3000) * 10.0 ** rng.integers(-8, 5, 3000)).tolist()
    single = np.array(drawn[:1000], np.float32).astype(float).tolist()
    every = [sign * x for x in (*halves, *tiny, *large, *drawn, *single) for sign in (1, -1)]
    near = [x * (1 + step) for x in drawn[:500] for step in (0.0, 1e-3, 1e-5, 1e-7)]
    pairs = [*pairwise(every), *pairwise(near)]
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps(pairs))

    for (one, other), (written, apart) in zip(pairs, look("numbers", file), strict=True):
        assert written == number(one), one
        first, second = (float(number(x).translate(AS_TYPED)) for x in (one, other))
        subtracted = float(apart.translate(AS_TYPED))
        exact = first - second or one - other
        assert subtracted == pytest.approx(exact, abs=5.1e-4), (one, other)
        assert (subtracted == 0) == (one == other), (one, other)
        assert apart.startswith("+") == (subtracted > 0), (one, other)


def check_entry(run: StageRun, turn: int, token: int, seen: Mapping[str, Any]) -> None:
    """Hold the numbers that the panel shows of an entry in a turn against `explain`."""
    why = explain(run.trace, run.dialogs, 0, turn, token)
    digits = turn_view(run.trace, run.dialogs, 0, turn).digits
    fate, gone = seen["fate"], why.rule != Rule.none
    assert fate["fate"] == ("evicted" if gone else "kept")
    assert fate["left"] == (turn if gone else None)
    stood, shielded = why.view.stood, why.view.protected & why.view.stood
    ranked = (stood if why.protected else stood & ~shielded).sum()
    place = why.rank if why.protected else why.place or None
    assert (fate["at"], fate["ranked"], fate["isProtected"]) == (turn, ranked, why.protected)
    assert (fate.get("rank"), fate["rule"]) == (place, why.rule.name if gone else "")
    topic = why.topic or "none"
    among = " unprotected" if shielded.any() and not why.protected else ""
    rank = f"rank {place} of {ranked}{among}" if place else "below the threshold"
    status = why.status.name.replace("_", ", ")
    size = max(run.trace.policy.page_size, 1)
    parts = ["protected"] * why.protected + [f"page {token // size}"] * (size > 1) + [rank]
    name = f"token {token}, topic {topic}, from turn {why.born}, {status}, {', '.join(parts)}"
    assert seen["name"] == name

    if why.rule == Rule.threshold:  # its rank and score were not what decided
        assert seen["rival"] is None
        return
    assert why.score is not None
    terms = why.terms if len(why.terms) > 1 else {}
    names = ["score", *map(why.view.policy.quantity_name, terms)]
    numbers = [why.score, *terms.values()]
    assert [row["name"] for row in seen["rows"]] == names
    if seen["rival"] is None:
        assert why.cutoff is None
        assert {row["margin"] for row in seen["rows"]} == {"–"}
        assert [row["entry"] for row in seen["rows"]] == [number(x, digits) for x in numbers]
        return
    assert why.cutoff is not None
    them = explain(run.trace, run.dialogs, 0, turn, seen["rival"])
    if token == why.marginal:
        assert (them.rule, them.score) == (Rule.budget, why.view.best_evicted)
    else:
        assert (them.token, them.score) == (why.marginal, why.cutoff)
    assert them.score is not None
    others = [them.score, *(them.terms[name] for name in terms)]
    for row, one, other in zip(seen["rows"], numbers, others, strict=True):
        assert (row["entry"], row["rival"]) == contrast(one, other, digits)
        if row["entry"] != row["rival"]:
            margin = float(row["margin"].translate(AS_TYPED))
            assert abs(margin) == float(gap(one, other, digits).translate(AS_TYPED))
    margin = seen["rows"][0]["margin"]
    if not why.protected and why.score != them.score:
        assert margin.startswith(minus("-") if gone else "+")
    if why.score == them.score:
        assert margin == "0"


@pytest.mark.long
@pytest.mark.parametrize("name", [*POLICIES, *OPTIONS])
def test_the_panel_has_of_every_entry_the_numbers_of_explain(
    name: str, runs: Mapping[str, StageRun], seen: Any
) -> None:
    run, (lane,) = runs[name], seen[name]["lanes"]
    for turn, token in zip(run.entries["turn"], run.entries["token"], strict=True):
        check_entry(run, int(turn), int(token), lane["turns"][turn][token])


@pytest.mark.long
@every_run
def test_the_parts_of_a_score_add_up_to_its_terms(
    name: str, runs: Mapping[str, StageRun], seen: Any
) -> None:
    run, (lane,) = runs[name], seen[name]["lanes"]
    terms = list(run.terms)
    for entry in run.entries.to_dict("records"):
        told = lane["turns"][entry["turn"]][entry["token"]]
        if told["course"] is None:
            continue
        for place, term in enumerate(terms):
            parts = [part["value"] for part in told["course"] if part["term"] == place]
            assert sum(parts) == pytest.approx(entry[term], rel=1e-5, abs=1e-6)


@pytest.mark.long
@every_run
def test_river_and_path_follow_what_is_kept(
    name: str, runs: Mapping[str, StageRun], seen: Any
) -> None:
    run, (lane,) = runs[name], seen[name]["lanes"]
    dialogs = run.dialogs
    kept = [[token for token in row.tolist() if token >= 0] for row in run.trace.kept_tokens[0]]
    river = []
    for turn, tokens in enumerate(kept):
        low = 0
        for hue, same in groupby(
            int(dialogs.current[0, dialogs.born[0, entry]]) for entry in tokens
        ):
            high = low + len(list(same))
            river.append({"turn": turn, "low": low, "high": high, "hue": hue})
            low = high
    assert lane["river"] == river
    for token, told in enumerate(lane["turns"][-1]):
        if "path" in told:
            path = [[turn, row.index(token)] for turn, row in enumerate(kept) if token in row]
            assert told["path"] == path


def test_what_is_not_in_a_turn_was_evicted_before_it(look: Look, tmp_path: Path) -> None:
    runs = run_of("h2o"), run_of("fifo")
    file = tmp_path / "lanes.packed"
    heads = [LaneHead(name, BUDGET, "", ()) for name in ("h2o", "fifo")]
    file.write_bytes(pack_lanes(runs, heads, None, "both"))
    ((seen,),) = [look("runs", file)]

    for run, lane in zip(runs, seen["lanes"], strict=True):
        for turn, entries in enumerate(lane["turns"]):
            for token, told in enumerate(entries):
                fate, why = told["fate"], explain(run.trace, run.dialogs, 0, turn, token)
                if why.status != Status.empty:
                    assert (fate["fate"] == "kept") == (why.rule == Rule.none)
                else:
                    assert why.eviction is not None
                    assert (fate["left"], fate["rule"]) == (why.eviction[0], why.eviction[1].name)
    for turn, said in enumerate(seen["headlines"]):
        kept = [set(run.trace.kept_tokens[0, turn].tolist()) - {-1} for run in runs]
        n, read = len(kept[0] & kept[1]), runs[0].dialogs.bounds[0, turn + 1]
        verb = "is" if n == 1 else "are"
        assert said == f"Turn {turn}: {n} of {read} tokens read {verb} in all caches."


@pytest.mark.long
def test_the_fate_of_a_value_is_that_of_the_token_which_decides(look: Look, tmp_path: Path) -> None:
    """Of every piece, in every turn, whichever view shows it."""
    recording = shipped_file("errands").recording(0)
    run = build_run(Spoken("dialog", recording), read_policy("fd-kvc"), 48)
    alone, lane = tmp_path / "alone.packed", tmp_path / "lane.packed"
    alone.write_bytes(pack(run, "alone"))
    lane.write_bytes(pack_lanes([run], [LaneHead("FD-KVC", 48, "", ())], None, "lane"))
    ((one,), (other,)) = (seen["lanes"] for seen in look("runs", alone, lane))
    words, born, bounds = run.dialog.words, run.dialogs.born[0], run.dialogs.bounds[0]
    apart = 0
    for turn, (entries, same) in enumerate(zip(one["turns"], other["turns"], strict=True)):
        for token, (told, again) in enumerate(zip(entries, same, strict=True)):
            assert told["value"] == again["value"]
            decides = run.deciding_token(turn, token)
            if told["value"] is None:
                assert decides == token
                continue
            fate = entries[decides]["fate"]
            by = f"decided by “{words[decides].strip()}”, token {decides} of turn {born[decides]}"
            assert told["value"]["below"].startswith(by)
            assert told["value"].get("gone", False) == (fate["fate"] == "evicted")
            assert decides < bounds[turn + 1]
            apart += fate["fate"] != told["fate"]["fate"] or fate["left"] != told["fate"]["left"]
    assert apart > 60


def test_topics_have_their_colours_and_the_ninth_the_first_with_a_pattern(seen: Any) -> None:
    topicless, *topics = seen["fifo"]["paint"]

    assert topicless == {"fill": TOPICLESS, "ink": letter_ink(TOPICLESS), "hatched": False}
    for place, paint in enumerate(topics):
        assert paint["fill"] == TOPICS[place % len(TOPICS)]
        assert paint["ink"] == letter_ink(paint["fill"])
        assert paint["hatched"] == (place >= len(TOPICS))


def test_pages_are_counted_with_their_empty_places(runs: Mapping[str, StageRun], seen: Any) -> None:
    name = "blocks(fd-kvc, size=4)"
    run, (lane,) = runs[name], seen[name]["lanes"]
    for row, said in zip(run.trace.kept_tokens[0], lane["paged"], strict=True):
        kept = row[row >= 0]
        pages = len({*(kept // 4).tolist()})
        empty = 4 * pages - len(kept)
        places = f"{empty or 'no'} {'slot' if empty == 1 else 'slots'} empty in them"
        assert said == f"{pages} of {BUDGET // 4} pages of 4 · {places}"


def test_the_layout_is_sound(node: str) -> None:
    done = ended(node, "--test", LOOK.with_name("layout.test.js"))
    assert not done.returncode, done.stdout


def test_the_bundles_are_built_from_the_modules_as_they_are(node: str, tmp_path: Path) -> None:
    if not (ROOT / "node_modules" / "esbuild").exists():
        (pytest.fail if REQUIRED else pytest.skip)("esbuild is not installed: npm install")
    done = ended("npm", "run", "--silent", "build", "--", f"--outdir={tmp_path}")
    assert not done.returncode, done.stderr
    for name in ("stage", "ear"):
        built, kept = (folder / f"{name}.js" for folder in (tmp_path, BUNDLES))
        assert built.read_text() == kept.read_text(), "changed modules: npm run build"


def test_a_bundle_does_what_its_modules_do(node: str, tmp_path: Path) -> None:
    """The ear hears the server, and speaks to it once the app is at rest."""
    file = tmp_path / "ear.mjs"
    file.write_text(
        """
let rests = true;
globalThis.document = { querySelector: () => (rests ? {} : null) };
globalThis.addEventListener = () => {};
"""
        + script("ear")
        + """
const said = [];
const changed = [];
mount({ data: { what: 'view', turn: 3 }, setStateValue: (...each) => said.push(each) });
globalThis.fdkvcStage.changed = (what) => changed.push(what);
mount({ data: { what: 'view', turn: 4 }, setStateValue: (...each) => said.push(each) });
globalThis.fdkvcStage.tell.view({ turn: 5 });
console.log(JSON.stringify([globalThis.fdkvcStage.view, said, changed]));
rests = false;
for (const turn of [6, 7]) globalThis.fdkvcStage.tell.view({ turn });
await new Promise((done) => setTimeout(done, 100));
console.log(JSON.stringify(said.slice(1)));
rests = true;
await new Promise((done) => setTimeout(done, 100));
console.log(JSON.stringify(said.slice(1)));
"""
    )
    done = ended(node, file)
    heard, busy, rested = map(json.loads, done.stdout.splitlines())
    assert heard == [{"what": "view", "turn": 4}, [["message", {"turn": 5}]], ["view"]]
    assert busy == []
    assert rested == [["message", {"turn": 7}]]


@pytest.mark.long
@pytest.mark.parametrize("name", ["fifo", "h2o", "fd-kvc", "random"])
def test_a_lane_of_a_long_dialog_has_the_fates_of_a_recorded_one(
    look: Look, tmp_path: Path, name: str
) -> None:
    run = run_of(name)
    long = replace(run, trace=simulate_long(run.trace.policy, run.dialogs, BUDGET))
    assert long.long
    files = []
    for source in (run, long):
        files.append(tmp_path / f"{source.long}.packed")
        files[-1].write_bytes(pack_lanes([source], [LaneHead(name, BUDGET, "", ())], None, "run"))

    recorded, recomputed = look("runs", *files)

    assert recorded["headlines"] == recomputed["headlines"]
    (one,), (other,) = recorded["lanes"], recomputed["lanes"]
    assert one["river"] == other["river"]
    for before, after in zip(one["turns"], other["turns"], strict=True):
        for token, (entry, same) in enumerate(zip(before, after, strict=True)):
            assert entry["path"] == same["path"], token
            for part in ("fate", "left", "at"):
                assert entry["fate"][part] == same["fate"][part], (token, part)
