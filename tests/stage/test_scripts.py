"""What the stage's scripts say of a run is what Python says of it; run by node, without a browser.

`look.js` prints what the modules make of runs that are packed as for the browser.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdkvc.charts.theme import TOPICLESS, TOPICS, letter_ink
from fdkvc.explain.explain import Explanation, explain, sentences
from fdkvc.policies import POLICIES, read_policy
from fdkvc.run.fork import Fork
from fdkvc.run.long import simulate_long
from fdkvc.run.trace import Rule, Status
from fdkvc.stage.drawn import script
from fdkvc.stage.payload import LaneHead, pack, pack_lanes
from fdkvc.stage.run import DialogChoice, Run, build_run, continue_run
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.words import contrast, gap, minus, number
from tests.policies.test_contract import BUDGET, OPTIONS, SMALL

LOOK = Path(__file__).parent / "look.js"
ROOT = LOOK.parents[2]
BUNDLES = ROOT / "fdkvc" / "stage" / "bundle"
REQUIRED = os.environ.get("FDKVC_REQUIRE_NODE") == "1"
NO_NODE = "node is not installed: get it with `apt-get install nodejs`"

Look = Callable[..., Any]


@pytest.fixture(scope="module")
def node() -> str:
    """Return where node is; without it, the tests of the scripts are not run."""
    found = shutil.which("node")
    return found or (pytest.fail if REQUIRED else pytest.skip)(NO_NODE)


@pytest.fixture(scope="module")
def look(node: str) -> Look:
    def run(*arguments: object) -> Any:
        done = subprocess.run(
            [node, LOOK, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    return run


def run_of(name: str, budget: int = BUDGET) -> Run:
    dialog = DialogChoice(SCENARIOS["mixed"], 1, SMALL)
    return build_run(dialog, read_policy(name), budget)


@pytest.fixture(scope="module")
def runs() -> Mapping[str, Run]:
    """Return a run of every policy, and of those whose turn takes other steps."""
    return {name: run_of(name) for name in (*POLICIES, *OPTIONS)}


@pytest.fixture(scope="module")
def seen(look: Look, runs: Mapping[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the scripts say of each of these runs."""
    files = []
    for place, run in enumerate(runs.values()):
        files.append(tmp_path_factory.getbasetemp() / f"{place}.packed")
        files[-1].write_bytes(pack(run, "run"))
    return dict(zip(runs, look("runs", *files), strict=True))


# ------------------------------------------------------------------------------- numbers


def difference(one: float, other: float, digits: int = 3) -> str:
    """Write a difference with its sign."""
    apart = gap(one, other, digits)
    sign = minus("-") if one < other else "+" if float(apart) > 0 else ""
    return sign + apart


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

    for (one, other), said in zip(pairs, look("numbers", file), strict=True):
        written = [number(one), *contrast(one, other), gap(one, other), difference(one, other)]
        assert said == written, (one, other)


# ------------------------------------------------------------------------------- why


def score_digits(why: Explanation) -> int:
    """Return the fewest decimals that tell a score, the cutoff and the best evicted apart."""
    scores = {why.score, why.cutoff, None if why.rule else why.best_evicted} - {None}
    return next(
        (
            digits
            for digits in range(3, 7)
            if len({number(each, digits) for each in scores if each is not None}) == len(scores)
        ),
        3,
    )


def verdict(why: Explanation, rival: str, other: float) -> str:
    """Say a decision as the panel does, from what `explain` found."""
    if why.rule == Rule.threshold:
        return "The threshold evicted it before the budget was applied."
    if why.best_evicted is None:
        slots = "slot is" if why.budget == 1 else "slots are"
        return f"The budget evicted nothing: {why.stayed} of {why.budget} {slots} used."
    if why.rule == Rule.budget and why.cutoff is None:
        return "Protected entries took every slot, so scores did not count."
    assert why.score is not None
    apart = gap(why.score, other, score_digits(why))
    measure = "the last kept" if why.rule else "the first evicted"
    if why.protected and why.score < other:
        return f"Protected: by score alone it would be evicted before {rival}."
    if why.protected:
        return f"Protected, and {apart} above the first evicted, {rival}."
    if why.score == other:
        return f"Tied with {measure}, {rival}: ties go to the older entry."
    return f"{apart} {'short of' if why.rule else 'above'} {measure}, {rival}."


def check_entry(run: Run, turn: int, token: int, told: Mapping[str, Any]) -> None:
    """Hold what the panel says of an entry in a turn against `explain` and its sentences."""
    own = run.at(turn)
    why = explain(own.trace, own.dialogs, 0, turn, token)
    fate, words = told["fate"], " ".join(sentences(why))
    gone = why.rule != Rule.none
    assert fate["fate"] == ("evicted" if gone else "kept")
    assert fate["left"] == (turn if gone else None)
    assert (fate["at"], fate["stood"], fate["isProtected"]) == (turn, why.stood, why.protected)
    assert (fate.get("rank"), fate["rule"]) == (why.rank, why.rule.name if gone else "")
    topic = why.topic or "none"
    rank = f"rank {why.rank} of {why.stood}" if why.rank else "below the threshold"
    status = why.status.name.replace("_", ", ")
    size = own.trace.policy.page_size
    parts = ["protected"] * why.protected + [f"page {token // size}"] * (size > 1) + [rank]
    name = f"token {token}, topic {topic}, from turn {why.born}, {status}, {', '.join(parts)}"
    assert told["name"] == name

    rival, other = "", math.nan
    if told["rival"] is None:
        assert told["rows"] == []
    else:
        them = explain(own.trace, own.dialogs, 0, turn, told["rival"])
        rival = f"token {them.token}" + f" of {them.topic}" * bool(them.topic)
        assert them.score is not None
        other = them.score
        if why.rule:
            assert (them.token, other) == (why.marginal, why.cutoff)
        else:
            assert (them.rule, other) == (Rule.budget, why.best_evicted)
        assert why.score is not None
        if not why.protected:  # the panel says by how much it is above, or short
            assert why.score <= other if why.rule else why.score >= other
        scores = {"score": (why.score, other)}
        terms = {
            why.policy.quantity_name(name): (why.terms[name], them.terms[name])
            for name in why.terms
            if len(why.terms) > 1
        }
        rows = [
            {"name": name, "own": own, "other": others, "apart": difference(*pair, digits)}
            for name, pair in (scores | terms).items()
            for digits in [score_digits(why) if name == "score" else 3]
            for own, others in [contrast(*pair, digits)]
        ]
        assert told["rows"] == rows
    assert told["verdict"] == verdict(why, rival, other)
    check_sentences(why, words, other, told["rows"])


def check_sentences(
    why: Explanation, words: str, other: float, rows: list[Mapping[str, str]]
) -> None:
    """Hold the sentences against the numbers that the panel shows."""
    if not why.decided:
        assert "nothing was decided" in words
    elif why.rule == Rule.threshold:
        assert "by the threshold" in words
    elif why.best_evicted is None:
        assert f"the budget evicted nothing, with {why.stayed} of" in words
    elif not rows:
        assert "did not count" in words
    elif why.rule:
        apart = rows[0]["apart"].lstrip("+−")
        tie = why.score == other
        assert f"Its score of {rows[0]['own']} ranked" in words
        assert ("ties go to the older entry" if tie else f"{apart} more") in words
        for row in rows[1:] if not tie else []:
            said = f"{row['name']} .*({re.escape(row['own'])} against {re.escape(row['other'])})"
            assert re.search(said, words, re.IGNORECASE)
    else:
        assert f"ts score of {rows[0]['own']} ranked" in words  # one precision in both
    if rows and not why.rule and not why.protected and why.score != other:
        apart = rows[0]["apart"].lstrip("+−")
        assert f"scored {rows[0]['other']}, {apart} less" in words


@pytest.mark.long
@pytest.mark.parametrize("name", [*POLICIES, *OPTIONS])
def test_the_panel_says_of_every_entry_what_explain_says(
    name: str, runs: Mapping[str, Run], seen: Any
) -> None:
    run, (lane,) = runs[name], seen[name]["lanes"]
    for turn, token in zip(run.entries["turn"], run.entries["token"], strict=True):
        check_entry(run, int(turn), int(token), lane["turns"][turn][token])


@pytest.mark.parametrize("name", [*POLICIES, *OPTIONS])
def test_the_parts_of_a_score_add_up_to_its_terms(
    name: str, runs: Mapping[str, Run], seen: Any
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


# ------------------------------------------------------------------------------- the other views


@pytest.mark.parametrize("name", [*POLICIES, *OPTIONS])
def test_river_and_path_follow_what_is_kept(name: str, runs: Mapping[str, Run], seen: Any) -> None:
    run, (lane,) = runs[name], seen[name]["lanes"]
    dialogs = run.dialogs
    kept = [[token for token in row.tolist() if token >= 0] for row in run.trace.kept[0]]
    river = []
    for turn, tokens in enumerate(kept):
        low = 0
        for hue, same in groupby(int(dialogs.current[0, dialogs.born[0, each]]) for each in tokens):
            high = low + len(list(same))
            river.append({"turn": turn, "low": low, "high": high, "hue": hue})
            low = high
    assert lane["river"] == river
    for token, told in enumerate(lane["turns"][-1]):
        if "path" in told:
            path = [[turn, row.index(token)] for turn, row in enumerate(kept) if token in row]
            assert told["path"] == path


def test_what_is_not_in_the_turn_went_before_it_or_was_taken_out(
    look: Look, tmp_path: Path
) -> None:
    """Also of a fork that dropped an entry, and evicts with another budget than its trunk."""
    trunk = run_of("h2o")
    dropped = int(trunk.trace.kept[0, 4][0])
    at_fork = set(trunk.trace.kept[0, 4].tolist())
    fork = continue_run(trunk, Fork(4, budget=8, dropped=dropped))
    file = tmp_path / "lanes.packed"
    heads = [LaneHead(name, BUDGET, "", ()) for name in ("trunk", "fork")]
    file.write_bytes(pack_lanes([trunk, fork], heads, None, "both"))
    ((seen,),) = [look("runs", file)]

    for run, lane in zip((trunk, fork), seen["lanes"], strict=True):
        for turn, entries in enumerate(lane["turns"]):
            own = run.at(turn)
            for token, told in enumerate(entries):
                fate, why = told["fate"], explain(own.trace, own.dialogs, 0, turn, token)
                if why.status != Status.empty:
                    assert (fate["fate"] == "kept") == (why.rule == Rule.none)
                elif why.left:
                    assert (fate["left"], fate["rule"]) == (why.left[0], why.left[1].name)
                elif run is fork and token in at_fork:
                    assert fate["fate"] == "absent"
                else:  # of the turns before the fork
                    assert fate["left"] is not None
                    assert fate["left"] <= 4
    both = [
        set(trunk.trace.kept[0, turn].tolist()) & set(own.trace.kept[0, turn - first].tolist())
        for turn in range(trunk.dialogs.turns)
        for own in [fork.at(turn)]
        for first in [own.trace.first_turn]
    ]
    for turn, (shared, said) in enumerate(zip(both, seen["headlines"], strict=True)):
        topic = trunk.dialogs.topic_label(trunk.dialogs.current[0, turn])
        n = len(shared - {-1})
        entries = "No entry is" if not n else "1 entry is" if n == 1 else f"{n} entries are"
        assert said == f"Turn {turn}: topic {topic}. {entries} in all caches."


def test_topics_have_their_colours_and_the_ninth_the_first_with_a_pattern(seen: Any) -> None:
    topicless, *topics = seen["fifo"]["paint"]

    assert topicless == {"fill": TOPICLESS, "ink": letter_ink(TOPICLESS), "hatched": False}
    for place, paint in enumerate(topics):
        assert paint["fill"] == TOPICS[place % len(TOPICS)]
        assert paint["ink"] == letter_ink(paint["fill"])
        assert paint["hatched"] == (place >= len(TOPICS))


def test_pages_are_counted_with_their_empty_places(runs: Mapping[str, Run], seen: Any) -> None:
    name = "blocks(fd-kvc, size=4)"
    run, (lane,) = runs[name], seen[name]["lanes"]
    for row, said in zip(run.trace.kept[0], lane["paged"], strict=True):
        kept = row[row >= 0]
        pages = len({*(kept // 4).tolist()})
        empty = 4 * pages - len(kept)
        places = f"{empty or 'no'} {'slot' if empty == 1 else 'slots'} empty in them"
        assert said == f"{pages} of {BUDGET // 4} pages of 4 · {places}"


# ------------------------------------------------------------------------------- the bundle


def test_the_bundles_are_built_from_the_modules_as_they_are(node: str, tmp_path: Path) -> None:
    if not (ROOT / "node_modules" / "esbuild").exists():
        (pytest.fail if REQUIRED else pytest.skip)("esbuild is not installed: npm install")
    build = ["npm", "run", "--silent", "build", "--", f"--outdir={tmp_path}"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
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
    done = subprocess.run([node, file], capture_output=True, text=True, check=True)
    heard, busy, rested = map(json.loads, done.stdout.splitlines())
    assert heard == [
        {"what": "view", "turn": 4},
        [["message", {"turn": 5}]],
        ["view"],
    ]
    assert busy == []
    assert rested == [["message", {"turn": 7}]]


@pytest.mark.parametrize("name", ["fifo", "h2o", "fd-kvc", "random"])
def test_a_lane_of_a_long_dialog_has_the_fates_of_a_recorded_one(
    look: Look, tmp_path: Path, name: str
) -> None:
    run = run_of(name)
    long = replace(run, trace=simulate_long(run.trace.policy, run.dialogs, BUDGET))
    assert long.long
    files = []
    for each in (run, long):
        files.append(tmp_path / f"{each.long}.packed")
        files[-1].write_bytes(pack_lanes([each], [LaneHead(name, BUDGET, "", ())], None, "run"))

    recorded, recomputed = look("runs", *files)

    assert recorded["headlines"] == recomputed["headlines"]
    (one,), (other,) = recorded["lanes"], recomputed["lanes"]
    assert one["river"] == other["river"]
    for before, after in zip(one["turns"], other["turns"], strict=True):
        for token, (own, same) in enumerate(zip(before, after, strict=True)):
            assert own["path"] == same["path"], token
            for part in ("fate", "left", "at"):
                assert own["fate"][part] == same["fate"][part], (token, part)
