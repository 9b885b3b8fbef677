"""The commands that replay dialogs."""

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest

from fdkvc.commands.kinds import read_run
from fdkvc.conversations.formats import EXAMPLES
from fdkvc.conversations.replay import Replay
from fdkvc.models.numpy import BUNDLED
from fdkvc.policies import PAPER_POLICIES
from tests.command_line import run

CAPTURED = pytest.CaptureFixture[str]


@pytest.mark.long
def test_dialogs_replays_the_projects_own_by_default(tmp_path: Path, capsys: CAPTURED) -> None:
    assert run("dialogs", "--out", tmp_path / "out") == 0

    said = capsys.readouterr().out
    assert said.startswith("lexical embedding, seed 0, tokens of")
    assert max(map(len, said.splitlines()[:-1])) <= 100
    assert len(said.splitlines()) <= 24
    assert said.endswith(f"Written to {tmp_path / 'out'}\n")
    summary = pd.read_csv(tmp_path / "out" / "replay_summary.csv")
    assert summary.policy.unique().tolist() == [*PAPER_POLICIES, "random"]
    assert summary.budget.unique().tolist() == [*Replay().budgets]
    assert set(pd.read_csv(tmp_path / "out" / "replay_paired.csv").baseline) == {"h2o"}
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert about["parameters"]["dialogs"] == 2


def test_what_is_not_read_is_said_once_and_is_in_the_record(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    said = {"role": "user", "content": "to Trieste", "mood": "in a hurry"}
    thought = {"role": "assistant", "content": "When?", "reasoning": "No day yet."}
    file, out = tmp_path / "chat.json", tmp_path / "out"
    file.write_text(json.dumps([said, thought, thought]))
    few = ("--dialogs", file, "--policies", "fifo", "--budgets", 8)
    kinds = {"field 'mood'": 1, "thinking": 2}

    for command in ("answers", "dialogs"):
        assert run(command, *few, "--out", out) == 0
        assert capsys.readouterr().err.count("Not read: field 'mood' (1×), thinking (2×).") == 1
        record = read_run((out / "run.json").read_bytes())
        assert record.dependencies["unread"] == kinds
    assert run("repeat", out / "run.json") == 0


def test_the_text_of_calls_is_read_if_that_is_asked_for(tmp_path: Path, capsys: CAPTURED) -> None:
    chat, few = EXAMPLES / "chat.json", ("--policies", "fifo", "--budgets", "200")
    ages = []
    for calls in ([], ["--calls"]):
        assert run("dialogs", "--dialogs", chat, *calls, *few, "--out", tmp_path / "out") == 0
        table = pd.read_csv(tmp_path / "out" / "replay.csv")
        ages.append(table[table.metric == "token_age"].value.item())
        about = json.loads((tmp_path / "out" / "run.json").read_text())["parameters"]
        source = "lexical embedding, seed 0, tokens of SmolLM2" + ", with the text of calls" * bool(
            calls
        )
        assert about["source"] == source
        assert capsys.readouterr().out.startswith(f"{source}\n")
    assert ages[1] != ages[0]  # a model reads calls as its template has them, or as the file does


def test_a_file_whose_name_is_no_utf_8_is_replayed_and_repeated(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    few = ("--policies", "fifo", "h2o", "--budgets", "40", "--out", tmp_path / "out\udcfe")
    dialogs = tmp_path / os.fsdecode(b"t\xe4\xff.txt")
    dialogs.write_text("User: hello\nAssistant: hello to you\n")

    assert run("dialogs", "--dialogs", dialogs, *few) == 0
    written = tmp_path / "out\udcfe" / "run.json"
    assert read_run(written.read_bytes()).dependencies["name"] == str(dialogs)
    assert run("repeat", written) == 0
    assert "the numbers are the same" in capsys.readouterr().out


def test_a_name_that_no_file_can_have_is_said_to_be_missing(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    few = ("--policies", "fifo", "h2o", "--budgets", "40", "--out", tmp_path)
    assert run("dialogs", "--dialogs", EXAMPLES / "chat.json", *few) == 0
    about = json.loads((tmp_path / "run.json").read_text())
    capsys.readouterr()
    for name in ("a" * 256, "a/" * 3000, "a\0b", "\udcff\ud800"):
        about["parameters"]["name"] = name
        (tmp_path / "run.json").write_text(json.dumps(about))
        assert run("repeat", tmp_path / "run.json") == 2
        said = capsys.readouterr().err
        assert said.startswith("fdkvc: the run read the file '")
        assert said.endswith("missing here: name it with --dialogs\n")


def test_a_dialog_that_is_too_large_is_left_out_and_said(tmp_path: Path, capsys: CAPTURED) -> None:
    file = tmp_path / "own.txt"
    file.write_text("User: hi\nSystem: yes\n---\nUser: " + "a " * 32_769)
    assert run("dialogs", "--dialogs", file, "--budgets", "8", "--policies", "fifo") == 0
    sentence = "dialog 1, turn 0: it has 32,769 tokens, but at most 32,768 are allowed"
    said = capsys.readouterr().err
    assert said.startswith(f"Left out:\n  {sentence}")
    assert said.count("\n") == 2


def test_what_nobody_said_and_what_was_said_of_something_else_is_counted(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    turns = [
        {
            "speaker": "USER",
            "utterance": utterance,
            "frames": [
                {
                    "service": service,
                    "state": {
                        "active_intent": "find",
                        "slot_values": {"area": ["north"], "kind": ["unsaid"]},
                    },
                }
            ],
        }
        for service, utterance in (("hotel", "a hotel in the north"), ("food", "and food there"))
    ]
    file, few = tmp_path / "own.json", ("--budgets", "8", "--policies", "fifo")
    file.write_text(json.dumps({"turns": turns}))
    file_options = ("--dialogs", file, "--tables")
    assert run("dialogs", *file_options, *few) == 0
    said = capsys.readouterr().out
    assert "Carried over from another service: 1 value." in said
    assert said.endswith("Not found in the text: 2 more values.\n")


def test_live_says_what_it_needs(tmp_path: Path, capsys: CAPTURED) -> None:
    assert run("live", "--model", tmp_path, "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert re.search("requirements-capture.txt|cannot be loaded", said)
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_plan_prints_the_card_and_nothing_else(tmp_path: Path, capsys: CAPTURED) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"num_hidden_layers": 4, "num_attention_heads": 2, "hidden_size": 128}')
    plan = ("--plan", config)
    assert run("dialogs", *plan) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100

    few = ("--policies", "fifo", "--budgets", "32", "900", "--pin")
    assert run("dialogs", *few, *plan, "--out", tmp_path / "out", "--tables") == 0
    out = capsys.readouterr().out
    assert "Call-argument recall % by source and age at budget 900" in out
    assert "To store less does not pay:" in " ".join(out.split())
    assert out.endswith(f"\n\nWritten to {tmp_path / 'out'}\n")
    table = pd.read_csv(tmp_path / "out" / "plan.csv")
    assert set(table.policy) == {"fifo", "whitelist(fifo, first=0, speaker=prompt)"}
    tokens = 2 * [921, 690]
    assert (table.slots == sum(tokens) / 4).all(), "no cache holds more than all"
    assert table.bytes.isna().all(), "SmolLM2's tokens tell no bytes of another model"
    lost = pd.read_csv(tmp_path / "out" / "replay_forgotten.csv")
    assert set(lost.budget) == {32}
    assert (lost.held < 1).all()

    assert run("dialogs", *few, *plan, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert {way["policy"]: way["size"] for way in record["ways"]} == dict.fromkeys(
        table.policy, 900
    )
    assert (record["unit"], record["pays"]) == ("SmolLM2", False)
    assert run("dialogs", "--policies", "fifo", "--budgets", "32", "--json") == 0
    assert json.loads(capsys.readouterr().out)["means"][0]["policy"] == "fifo"

    counted = ("--tokens", BUNDLED)
    for shape, known in (("llama-3.1-8b", False), ("32x8x128x16", True)):
        assert run("dialogs", *few, "--plan", shape, *counted, "--json") == 0
        record = json.loads(capsys.readouterr().out)
        assert record["unit"] == "bundled"
        assert (record["ways"][0]["bytes"] is not None) == known, "bytes in its own tokens alone"
    assert run("dialogs", *few, counted[0], "ollama:none") == 2
    assert "no such model on this machine" in capsys.readouterr().err


FEW = ("--policies", "fifo", "fd-kvc:gamma=0.8", "--budgets", "32", "64", "--baseline", "fifo")


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        ("--seed", "5", "--calls", "--dialogs", "own.json", "--metrics", "retention"),
        ("--tools", "--dialogs", str(EXAMPLES / "errands.json")),
        ("--plan", "4x2x64x8", "--pin", "--seed", "2"),
    ],
    ids=["file", "tools", "plan"],
)
def test_repeat_gives_the_numbers_of_dialogs_again(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.json").write_bytes((EXAMPLES / "chat.json").read_bytes())
    assert run("dialogs", *FEW, *options, "--out", "out") == 0
    capsys.readouterr()

    tools = ("--tools",) if "--tools" in options else ()
    assert run("repeat", "out/run.json", *tools) == 0
    said = capsys.readouterr().out
    assert said.startswith("Repeated: the numbers are the same in replay.csv")
    assert {path.name for path in Path("out").iterdir()} == {
        *json.loads(Path("out/run.json").read_text())["files"],
        "run.json",
    }


@pytest.mark.long
def test_repeat_names_a_file_of_dialogs_that_is_missing_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.json").write_bytes((EXAMPLES / "chat.json").read_bytes())
    assert run("dialogs", *FEW, "--dialogs", "own.json", "--out", "out") == 0
    capsys.readouterr()
    Path("own.json").rename("moved.json")

    assert run("repeat", "out/run.json") == 2
    assert "fdkvc: the run read the file 'own.json'" in capsys.readouterr().err
    Path("own.json").write_bytes((EXAMPLES / "dialogues.json").read_bytes())
    assert run("repeat", "out/run.json") == 2
    assert "fdkvc: the run read another file of dialogs" in capsys.readouterr().err
    assert run("repeat", "out/run.json", "--dialogs", "moved.json") == 0


def test_repeat_reads_the_record_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    monkeypatch.chdir(tmp_path)
    chat = ("--dialogs", str(EXAMPLES / "chat.json"))
    assert run("dialogs", *FEW, "--calls", *chat, "--out", "out") == 0
    record = json.loads(Path("out/run.json").read_text())
    del record["parameters"]["name"]
    Path("out/replay.json").write_text(json.dumps(record))
    capsys.readouterr()

    assert run("repeat", "out/replay.json", *chat) == 0
    assert capsys.readouterr().out.startswith("Repeated: the numbers are the same in")
