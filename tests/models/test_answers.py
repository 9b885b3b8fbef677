"""What answers lose is what one finds by reading each dialog by itself, under each cache alone."""

import json
import pickle
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.conversations.formats import EXAMPLES
from fdkvc.core.transcripts import Transcript
from fdkvc.engine.metrics import metrics_of
from fdkvc.engine.sinks import PROTECT
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.models.answers import FULL, TOKENS_REREAD, Answers, run_answers, run_job
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.chat import generate
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.model_text import model_text
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache, read
from fdkvc.policies import policy_named, read_policy
from fdkvc.runs.jobs import Execution, Progress
from tests.command_line import run
from tests.examples import dialogs_of
from tests.language_models import write_model

CAPTURED = pytest.CaptureFixture[str]
REREAD = "reread(fifo)"
FEW = Answers(tuple(map(read_policy, ("fifo", "h2o", REREAD))), budgets=(12, 40), write_calls=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("answering"), seed=5)


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return load_language_model(folder)


@pytest.fixture(scope="module")
def table(model: LanguageModel) -> pd.DataFrame:
    """Return what is measured of the dialogs' beginnings."""
    return run_answers(FEW, model, shortened(), workers=1)


def shortened(turns: int = 6) -> list[Transcript]:
    """Return the beginnings of the project's own dialogs, with the calls made in them."""
    return [
        replace(
            dialog,
            turns=dialog.turns[:turns],
            calls=tuple(call for call in dialog.calls if call.turn < turns),
            demands=tuple(demand for demand in dialog.demands if demand.turn < turns),
        )
        for dialog in dialogs_of("dialogues")
    ]


def by_hand(
    model: LanguageModel, cache: TextCache, dialog: Transcript, rereads: int = 10**6
) -> dict[str, Any]:
    """Read a dialog under one cache: log p of every token, its distribution, and its calls."""
    logs: list[Any] = []
    came, text = list[int](), list[int]()
    next_, exact = None, []
    for passage in map(model.tokens.encode_passage, model_text(dialog)):
        call = cache.fork()
        output = read([cache], passage.ids)[0].astype(float)
        before = output[:-1] if next_ is None else np.concatenate([next_, output[:-1]])
        ids = passage.ids[len(passage.ids) - len(before) :]
        next_ = output[-1:]
        logs += list(before - np.log(np.exp(before).sum(axis=1, keepdims=True)))
        came += ids
        if passage.passage.call is not None:
            logits = read([call], [3], last=1)[:, 0]
            steps = generate(model.tokens, [call], logits, most=len(passage.ids) + 8)
            exact.append([step[0] for step in steps] == list(passage.ids[1:]))
        cache.end_turn()
        text += passage.ids
        if len(text) > rereads:
            read([cache := TextCache(model.decoder)], text[-rereads:])
            cache.end_turn()
    return {"logs": np.array(logs), "came": np.array(came), "exact": exact}


def value(table: pd.DataFrame, dialog: str, policy: str, budget: int, metric: str) -> float:
    chosen = (table.dialog == dialog) & (table.policy == policy) & (table.metric == metric)
    (number,) = table[chosen & (table.budget == budget)].value
    return float(number)


def test_measures_are_what_reading_under_one_memory_gives(
    model: LanguageModel, table: pd.DataFrame
) -> None:
    ways = (("fifo", 12), (REREAD, 40)), (("h2o", 40), (REREAD, 12))
    for dialog, ways_of_dialog in zip(shortened(), ways, strict=True):
        full = by_hand(model, TextCache(model.decoder), dialog)
        for name, budget in ways_of_dialog:
            case = TextCache(model.decoder), dialog, budget
            if name != REREAD:
                case = EvictingCache(model.decoder, policy_named(name), budget), dialog, 10**6
            limited = by_hand(model, *case)
            at = np.arange(len(limited["came"]))
            kl = (np.exp(full["logs"]) * (full["logs"] - limited["logs"])).sum(axis=1)
            expected = {
                "nats": -limited["logs"][at, limited["came"]].mean(),
                "kl": kl.mean(),
                "kl_p99": np.quantile(kl, 0.99),
                "same_best": (limited["logs"].argmax(1) == full["logs"].argmax(1)).mean(),
                "calls_exact": np.mean(limited["exact"]),
            }
            for metric, number in expected.items():
                actual = value(table, dialog.name, name, budget, metric)
                assert actual == pytest.approx(number, rel=1e-4, abs=1e-5), metric
        for budget in (12, 40):
            assert value(table, dialog.name, FULL, budget, "kl") == 0
            assert value(table, dialog.name, FULL, budget, "same_best") == 1
        assert value(table, dialog.name, "fifo", 12, TOKENS_REREAD) == 0
        assert value(table, dialog.name, REREAD, 12, TOKENS_REREAD) > 12
    assert set(table.policy) == {FULL, "fifo", "h2o", REREAD}
    assert set(table.metric) <= {*metrics_of("answers"), TOKENS_REREAD}


def test_values_are_counted_by_the_turns_since_their_last_mention(model: LanguageModel) -> None:
    (dialog, *_) = dialogs_of("dialogues")
    table = run_answers(
        replace(FEW, policies=FEW.policies[:1], budgets=(4096,)), model, [dialog], workers=1
    )
    counts = table[table.policy == FULL].set_index("metric")["count"]

    expected = {"nats_recent": 0, "nats_middle": 0, "nats_old": 0}
    for passage in map(model.tokens.encode_passage, model_text(dialog)):
        call = passage.passage.call
        for argument, span in zip(
            call.arguments if call else (), passage.passage.spans, strict=True
        ):
            if call is not None and argument.mention is not None:
                age = call.turn - argument.mention.turn
                name = "recent" if age <= 2 else "middle" if age <= 6 else "old"
                expected[f"nats_{name}"] += len(passage.tokens_of(*span))
    assert {name: counts[name] for name in expected} == expected
    assert counts["nats_arguments"] == sum(expected.values())
    assert min(expected.values()) > 0
    assert counts["calls_exact"] == len(dialog.calls)
    assert counts["values_right"] == sum(len(call.arguments) for call in dialog.calls)


def values_by_hand(model: LanguageModel, cache: TextCache, dialog: Transcript) -> list[Any]:
    """Return (right, age, source) of each value, by greedy decoding after the true text."""
    graded, closing = [], model.tokens.encode(";")[0] + model.tokens.encode(" ;")[0]
    for passage in map(model.tokens.encode_passage, model_text(dialog)):
        call = passage.passage.call
        for argument, span in zip(
            call.arguments if call else (), passage.passage.spans, strict=True
        ):
            assert call is not None
            first, fork = passage.tokens_of(*span)[0], cache.fork()
            logits = read([fork], passage.ids[:first], last=1)[0, 0]
            written: list[int] = []
            while (token := int(logits.argmax())) not in (*closing, model.tokens.end):
                written.append(token)
                if len(written) == 30:
                    break
                logits = read([fork], [token], last=1)[0, 0]
            right = model.tokens.text(written).strip() == dialog.wording(argument)
            if mention := argument.mention:
                speaker = dialog.turns[mention.turn].speaker
                source = "user" if speaker == "USER" else "assistant"
                graded.append((right, call.turn - mention.turn, source))
            else:
                graded.append((right, 0, ""))
        read([cache], passage.ids)
        cache.end_turn()
    return graded


@pytest.mark.long
def test_a_value_is_right_where_greedy_decoding_after_the_true_text_writes_it() -> None:
    model = load_language_model(BUNDLED)
    dialogs = dialogs_of("dialogues")[:3]
    settings = replace(FEW, budgets=(24, 64), policies=FEW.policies[:2])
    table = run_answers(settings, model, dialogs, workers=1)

    seen = set()
    for dialog in dialogs:
        full = values_by_hand(model, TextCache(model.decoder), dialog)
        assert value(table, dialog.name, FULL, 24, "values_right") == np.mean([r for r, *_ in full])
        for name, budget in (("fifo", 24), ("h2o", 24), ("fifo", 64), ("h2o", 64)):
            cache = EvictingCache(model.decoder, policy_named(name), budget)
            limited = values_by_hand(model, cache, dialog)
            seen |= {right for right, *_ in limited}
            pairs = zip(limited, full, strict=True)
            of_full = [graded for graded, with_all in pairs if with_all[0]]
            expected = {"values_right": limited, "values_right_of_full": of_full}
            for age, (low, high) in {"recent": (0, 2), "middle": (2, 6), "old": (6, 99)}.items():
                expected[f"values_right_of_full_{age}"] = [
                    graded for graded in of_full if low < graded[1] <= high
                ]
            for source in ("user", "assistant", "result"):
                expected[f"values_right_of_full_{source}"] = [
                    graded for graded in of_full if graded[2] == source
                ]
            rows = table[(table.dialog == dialog.name) & (table.policy == name)]
            rows = rows[rows.budget == budget].set_index("metric")
            for metric, graded in expected.items():
                assert (metric in rows.index) == bool(graded)
                if graded:
                    assert rows["count"][metric] == len(graded)
                    assert rows.value[metric] == np.mean([right for right, *_ in graded]), metric
    assert seen == {True, False}


class Knowing:
    """Lets a cache write what it is to write but for some words of it."""

    def __init__(self, tokens: Any, said: Sequence[str]) -> None:
        self.said = [[*tokens.encode(text)[0], tokens.end] for text in said]

    def __call__(self, tokens: Any, caches: Sequence[TextCache], *_: Any, **__: Any) -> Any:
        texts, self.said = self.said[: len(caches)], self.said[len(caches) :]
        for at in range(max(map(len, texts))):
            yield {who: text[at] for who, text in enumerate(texts) if at < len(text)}


def test_arguments_are_right_by_slot_and_value(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fdkvc.models.numpy.chat as chat_module

    dialog = shortened(4)[0]
    (call,) = (passage for passage in model_text(dialog) if passage.call)
    assert call.text.startswith("FindTrain ; date = Friday the 9th of May ; d")
    said = [
        call.text.replace("Ljubljana", "Zagreb"),
        "FindHotel ; destination = Trieste",
        call.text,
        "",
    ]
    monkeypatch.setattr(chat_module, "generate", Knowing(model.tokens, said))
    settings = replace(FEW, budgets=(4096,))

    table = run_answers(settings, model, [dialog], workers=1)

    right = table[table.metric == "arguments_right"].set_index("policy").value
    assert right.tolist() == pytest.approx([2 / 3, 1 / 3, 1, 0])
    kept = table[table.metric == "arguments_right_of_full"].set_index("policy").value
    assert kept.tolist() == pytest.approx([1, 1 / 2, 1, 0])
    assert not (table.metric == "calls_exact_of_full").any()  # the full cache writes none


def test_a_call_is_exact_where_the_model_writes_it(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog = shortened(4)[0]
    wanted = [
        list(passage.ids)
        for passage in map(model.tokens.encode_passage, model_text(dialog))
        if passage.passage.call
    ]
    whole = type(model.decoder).read

    def knows(decoder: Any, ids: Any, caches: Any, **settings: Any) -> Any:
        """Say the right next token, wherever a call is being read or written."""
        logits = whole(decoder, ids, caches, **settings)
        for row, (cache, new) in enumerate(zip(caches, ids.tolist(), strict=True)):
            text = cache.ids + new
            for call in wanted:
                for at in range(logits.shape[1]):
                    said = text[: len(text) - logits.shape[1] + at + 1]
                    for length in range(1, len(call)):
                        if said[-length:] == call[:length]:
                            logits[row, at, call[length]] += 1000
        return logits

    monkeypatch.setattr(type(model.decoder), "read", knows)
    for every in (None, 3):
        # While a call is written, what rereads the text loses the beginning that `knows` looks for.
        settings = replace(
            FEW, budgets=(12,), every=every, policies=FEW.policies[: 3 if every is None else 2]
        )
        table = run_answers(settings, model, [dialog], workers=1)
        for metric in ("values_right", "calls_exact", "arguments_right", "calls_exact_of_full"):
            assert (table[table.metric == metric].value == 1).all(), metric


@pytest.mark.long
def test_a_dialog_is_the_same_beside_others_on_any_executor_and_beside_other_policies(
    model: LanguageModel,
) -> None:
    settings = replace(FEW, policies=FEW.policies[:2], budgets=(12,), every=4)
    dialogs = shortened(4)
    more = [replace(dialogs[0], name="a chunk of its own")]
    seen: list[int] = []

    with ThreadPoolExecutor(2) as pool:
        together = run_answers(
            settings,
            model,
            [
                *dialogs,
                *(replace(dialog, name=f"{dialog.name}, again") for dialog in dialogs),
                *more,
            ],
            executor=pool,
            on_progress=lambda progress: seen.append(progress.finished_jobs),
        )
    work = partial(run_job, replace(settings, policies=settings.policies[:1]), model)
    alone = pickle.loads(pickle.dumps(work))(dialogs[:1])  # as a worker gets it

    assert sorted(seen)[-1] == 5
    assert alone
    assert set(alone) <= set(together.itertuples(index=False, name=None))


@pytest.mark.parametrize("passages", [0, 3])
def test_a_run_that_is_cancelled_amid_a_dialog_ends_there(
    model: LanguageModel, passages: int
) -> None:
    cancelled, seen = Event(), list[Progress]()

    def stop_late(step: Progress) -> None:
        seen.append(step)
        if len(seen) == passages:
            cancelled.set()

    if not passages:
        cancelled.set()
    how: Execution = {"workers": 1, "on_progress": stop_late, "cancelled": cancelled}
    assert run_answers(FEW, model, shortened(), **how).empty
    assert len(seen) == passages


def test_progress_counts_what_evicting_and_reading_again_take(model: LanguageModel) -> None:
    (dialog, _), seen = shortened(), list[Progress]()
    lengths = [len(passage.ids) for passage in model.tokens.encode_dialog(dialog)]
    budget = sum(lengths[:4])
    settings = Answers(tuple(map(read_policy, ("fifo", REREAD))), budgets=(budget,))
    run_answers(settings, model, [dialog], workers=1, on_progress=seen.append)
    work = [
        *lengths[:4],
        lengths[4] + budget // 2,
        *(3 * tokens + budget // 2 for tokens in lengths[5:]),
    ]
    assert [step.finished_jobs for step in seen] == [*accumulate(work)]
    assert {step.total for step in seen} == {sum(work)}


def measured(values: dict[str, list[float]], metric: str = "nats", budget: int = 8) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (f"dialog {at}", "ABCDEFGH"[at // 2], policy, budget, metric, number, 1 + at % 3)
            for policy, numbers in values.items()
            for at, number in enumerate(numbers)
        ],
        columns=["dialog", "services", "policy", "budget", "metric", "value", "count"],
    )


def test_means_weigh_dialogs_by_what_they_count_and_differences_are_paired() -> None:
    random = np.random.default_rng(0)
    base = random.normal(size=12)
    worse = base + 0.5 + 0.01 * random.normal(size=12)
    table = measured({FULL: base.tolist(), "fifo": worse.tolist(), "sink": (base + 1e-9).tolist()})
    weights = 1 + np.arange(12) % 3

    summary = mean_table(table).set_index("policy")
    paired = paired_differences(table, FULL).set_index("policy")

    assert summary["mean"][FULL] == pytest.approx(np.average(base, weights=weights))
    assert summary.services[FULL] == 6
    assert summary["count"][FULL] == weights.sum()
    assert paired.mean_diff["fifo"] == pytest.approx(np.average(worse - base, weights=weights))
    assert paired.ci_low["fifo"] < paired.mean_diff["fifo"] < paired.ci_high["fifo"]
    assert paired.ci_high["fifo"] - paired.ci_low["fifo"] < 0.1  # paired: dialogs differ by more
    assert paired.significant.to_dict() == {"fifo": True, "sink": False}


def test_the_interval_of_a_share_ends_at_0_and_1() -> None:
    table = measured(
        {FULL: [1.0] * 10 + [0.0, 1.0], "fifo": [0.0] * 10 + [1.0, 0.0]}, "calls_exact"
    )

    summary = mean_table(table).set_index("policy")
    assert summary.ci_high[FULL] == 1
    assert summary.ci_low["fifo"] == 0
    assert 0 < summary.ci_low[FULL] < summary["mean"][FULL]


def write_bookings(folder: Path, names: Sequence[str]) -> Path:
    """Write conversations in which a call has values of earlier turns; return their file."""
    call = {"function": {"name": "book", "arguments": {"place": "Trieste", "day": "Friday"}}}
    messages = [
        {"role": "user", "content": "to Trieste, please"},
        {"role": "assistant", "content": "when?"},
        {"role": "user", "content": "Friday"},
        {"role": "assistant", "content": "done", "tool_calls": [call]},
    ]
    (file := folder / "chat.json").write_text(
        json.dumps([{"id": name, "messages": messages} for name in names])
    )
    return file


@pytest.mark.long
def test_the_command_writes_what_its_help_and_document_say(
    folder: Path, tmp_path: Path, capsys: CAPTURED
) -> None:
    few = ("--policies", "fifo", "h2o", "sink", "reread(fifo)", "--budgets", "8", "--write-calls")
    out = tmp_path / "out"
    files = ("--model", folder, "--dialogs", write_bookings(tmp_path, ("one", "two")), "--out", out)
    assert run("answers", *files, *few) == 0

    said, beside = capsys.readouterr()
    assert f"under FIFO and H2O. {PROTECT}\n" in beside
    assert said.startswith(f"{folder.name}\n\nMeans over 2 dialogs by budget")
    assert "calls_exact, %" in said
    assert said.endswith(f"Written to {out}\n")
    document = (EXAMPLES.parents[2] / "commands" / "README.md").read_text("utf-8")
    listed = document.partition("| file of answers |")[2].partition("\n\n")[0]
    written = sorted(path.name for path in out.iterdir())
    assert all(name == "run.json" or f"`{name}`" in listed for name in written)
    tables = {name: pd.read_csv(out / name) for name in written if name.endswith(".csv")}
    assert len(tables) == listed.count(".csv`") == 3
    assert set(tables["answers.csv"].policy) == {FULL, "fifo", "h2o", "sink", REREAD}
    assert all(len(table) for table in tables.values())
    assert set(tables["answers_paired.csv"].baseline) == {FULL}
    about = json.loads((out / "run.json").read_text())
    assert about["parameters"]["model"]["name"] == folder.name

    assert run("repeat", out / "run.json", *files[:4]) == 0
    assert "the numbers are the same in answers.csv" in capsys.readouterr().out
    others: list[tuple[Path, str]] = [
        (BUNDLED, "the run used another model: name its folder with --model"),
        (
            folder,
            "the run read another file of dialogs: name it with --dialogs; if it began with its "
            "tools, add --tools",
        ),
    ]
    for other, sentence in others:
        assert run("repeat", out / "run.json", "--model", other) == 2
        assert capsys.readouterr().err == f"fdkvc: {sentence}\n"
    parameters = about["parameters"]
    for name, value, sentence in (
        ("baseline", "tova", "parameters.baseline: 'tova' is not one of its policies"),
        ("baseline", "fifo", "from its record in answers_paired.csv: "),
        ("dialogs", 7, "from its record in parameters.dialogs"),
        ("model", {**parameters["model"], "name": "x"}, "from its record in parameters.model.name"),
        ("model", {**parameters["model"], "more": 1}, "from its record in parameters.model.more"),
        ("file", "x", "the run read another file of dialogs"),
    ):
        text = json.dumps({**about, "parameters": {**parameters, name: value}})
        (out / "run.json").write_text(text)
        assert run("repeat", out / "run.json", *files[:4]) == 2
        assert sentence in capsys.readouterr().err


def test_a_dialog_that_the_model_cannot_hold_is_left_out_and_named(
    folder: Path, tmp_path: Path, capsys: CAPTURED
) -> None:
    short = [{"role": "user", "content": "to Trieste"}, {"role": "assistant", "content": "when?"}]
    long = [{"role": "user", "content": "x " * 1000}, {"role": "assistant", "content": "y " * 1000}]
    file, out = tmp_path / "chat.json", tmp_path / "out"
    conversations = [{"id": name, "messages": short} for name in ("one", "three")]
    conversations.insert(1, {"id": "two", "messages": long})
    file.write_text(json.dumps(conversations))
    which = ("--model", folder, "--dialogs", file)
    few = ("--policies", "fifo", "--budgets", 8)

    assert run("answers", *which, *few, "--out", out) == 0

    told = capsys.readouterr()
    assert re.search(r"two: [\d,]+ tokens, but .* at most 2,048", told.err)
    assert json.loads((out / "run.json").read_text())["parameters"]["dialogs"] == 2
    file.write_text(json.dumps(conversations[::2]))
    alone = tmp_path / "alone"
    assert run("answers", *which, *few, "--out", alone) == 0
    assert "Left out" not in capsys.readouterr().err
    assert (alone / "answers.csv").read_bytes() == (out / "answers.csv").read_bytes()
    file.write_text(json.dumps(conversations))
    assert run("repeat", out / "run.json", *which) == 0
    told = capsys.readouterr()
    assert "Left out:\n  two: " in told.err
    assert "the numbers are the same" in told.out
    file.write_text(json.dumps(conversations[1:2]))
    assert run("answers", *which, *few, "--out", tmp_path / "none") == 2
    assert capsys.readouterr().err.startswith("fdkvc: two: ")


def test_a_dialog_that_the_model_cannot_hold_is_named(tmp_path: Path) -> None:
    model = load_language_model(write_model(tmp_path, max_position_embeddings=100))

    with pytest.raises(ValueError, match=r"^A weekend in Trieste: .*model holds"):
        run_answers(FEW, model, shortened(), workers=1)


def test_what_grades_comes_from_reading_unless_writing_is_asked_for(
    model: LanguageModel, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdkvc.models.answers.generate_passages", None)
    alone = run_answers(replace(FEW, write_calls=False), model, shortened(), workers=1)

    assert Answers().write_calls is False
    kept = ~table.metric.str.contains("calls_exact|arguments_right")
    assert not kept.all()
    pd.testing.assert_frame_equal(alone, table[kept].reset_index(drop=True))
