"""What a call needs that only memory can supply, and where it stands as a whole."""

from typing import Any

import pytest

from fdkvc.conversations.needs import setting_slots, things_of
from fdkvc.conversations.sessions import MadeCall, Message
from fdkvc.conversations.thing_index import ThingIndex
from fdkvc.core.transcripts import Turn


def values(arguments: Any, method: str = "run") -> list[str]:
    return [thing.value for thing in things_of(MadeCall(method, arguments))]


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("git checkout release/2026-11", ["release/2026-11"]),
        (
            "git cherry-pick 7c41e9b && git push origin fix-port-check",
            ["7c41e9b", "fix-port-check"],
        ),
        ("cd /srv/app && sed -n '1,220p' src/port.py | head -2000", ["src/port.py"]),
        ("ss -ltn sport = 8443", ["8443"]),
        (
            "curl -s http://localhost:8443/health > out.txt",
            ["http://localhost:8443/health", "out.txt"],
        ),
        (
            "python -m pytest tests/test_zone.py::test_low_water -q",
            ["tests/test_zone.py", "test_low_water"],
        ),
        ("kubectl logs web-7f9c --tail=5000 --timeout 3000", ["web-7f9c"]),
        ("git commit -m 'OPS-4471: wait-free sums in lexer.py'", ["OPS-4471", "lexer.py"]),
        ("grep -rn 'lowWater\\|high_water' . ; sleep 9000", ["lowWater", "high_water"]),
        ("sed -i 's/old/new/' main.py 2>/dev/null", ["main.py"]),
        (
            "cat <<'EOF' > notes.md\nsee /srv/app/big.py and/or x = 1\nEOF",
            ["notes.md", "/srv/app/big.py"],
        ),
        ("npm run check", []),
        ("tides close OPS-4471 --status=in_progress --priority=3", ["OPS-4471"]),
        ("# Mend lexer.py\nmake notes-7f", ["notes-7f"]),
        ("git commit -m 'Sums\n\nCo-Authored-By: Ida <ida@harbour.example>'", []),
        ("grep -n 'class Markdown' src/port.py", ["Markdown", "src/port.py"]),
        ("tides note --body 'TideClock.read_low/1 lacks low_water'", ["read_low", "low_water"]),
    ],
)
def test_things_inside_a_command_are_needs_and_its_words_are_none(
    command: str, needed: list[str]
) -> None:
    assert values({"command": command}) == needed
    assert values({"cmd": ["bash", "-lc", command]}) == needed


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"taskId": "3"}, "task"),
        ({"pr_number": 41}, "pr"),
        ({"id": "7"}, "id"),
        ({"command": "gh pr edit 41 --add-label tide"}, "pr"),
        ({"command": "tides close --berth-id 7"}, "berth"),
        ({"command": "tides close berth 7"}, "berth"),
    ],
)
def test_a_short_number_stands_beside_the_noun_of_its_parameter(arguments: Any, word: str) -> None:
    (thing, *_) = things_of(MadeCall("run", arguments))
    assert thing.context_word == word


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({"file_path": "/srv/app/big.py", "offset": 95, "limit": 180}, ["/srv/app/big.py"]),
        ({"path": "a.py", "view_range": [120, 2400], "timeout": 60000, "all": True}, ["a.py"]),
        ({"region": "eu-west-7", "mode": "fast", "status": "open"}, ["eu-west-7"]),
        (
            {"place": "San Jose", "guest": "Zoë Müller", "code": "QX-771"},
            ["San Jose", "Zoë Müller", "QX-771"],
        ),
        ({"description": "Run the tests of main", "workdir": "/srv/app"}, []),
        (
            {"prompt": "Look at src/port.py and write to ida@harbour.example"},
            ["src/port.py", "ida@harbour.example"],
        ),
        (
            {"file_path": "b.ts", "new_string": "import x from './utils/tools.js'; OPS-4471"},
            ["b.ts", "OPS-4471"],
        ),
        ("*** Begin Patch\n*** Update File: src/port.py\n-low_water = 1\n", ["src/port.py"]),
        (
            {"query": "SELECT * FROM orders WHERE id = 88213 AND customer = 'C-2231'"},
            ["88213", "C-2231"],
        ),
        ({"query": "how to sort a list"}, []),
        (
            {"pattern": "SessionLive|low_water", "glob": "**/tide.ex"},
            ["SessionLive", "low_water", "tide.ex"],
        ),
        (
            {"file": "c.ts", "oldText": "OPS-4471 lowWater", "newText": "readTide(x.skipped)"},
            [*("c.ts", "readTide")],
        ),
        ({"file": "README.md"}, []),
        ({"prompt": "Is it on/off, and is src/tools/low read?"}, ["src/tools/low"]),
        ({"content": "see /srv/app and PostgreSQL"}, []),
        ({"text": "yes"}, []),
        ({"pattern": "low_water", "output_mode": "files_with_matches"}, ["low_water"]),
        ({"subagent_type": "code-reviewer", "sandbox_permissions": "with_escalated"}, []),
        ({"todos": [{"id": "1", "status": "in_progress", "activeForm": "Mending a.py"}]}, ["a.py"]),
        ({"shell_id": "shell_2", "role_name": "deploy-tides"}, ["shell_2", "deploy-tides"]),
        ({"prompt": "Use Next.js and Node.js, not tide.js"}, ["tide.js"]),
        ({"command": "find . -not -path '*/node_modules/*' | xargs grep tide_log"}, ["tide_log"]),
        ({"taskId": "37", "intent": "Mend the tides"}, ["37"]),
        ({"pages": "1-5", "instruction": "Change the name"}, []),
        ({"type": "tide-table", "start": "2026-11-05", "code": "12"}, ["2026-11-05", "12"]),
        (
            {"start": "9:30", "output_path": "weekly_report", "state_key": "API_TOKEN"},
            ["9:30", "weekly_report", "API_TOKEN"],
        ),
        (
            {"output_file": "low-water", "output_dir": "build_tides", "output_branch": "fix-tide"},
            ["low-water", "build_tides", "fix-tide"],
        ),
        (
            {"secret_scope": "PROD_DB_KEY", "return_type": "TurnView", "sort_key": "created_at"},
            ["PROD_DB_KEY", "TurnView", "created_at"],
        ),
        (
            {"role": "deploy-bot", "unit": "nginx-proxy", "unit_test": "test_low_water"},
            ["deploy-bot", "nginx-proxy", "test_low_water"],
        ),
        (
            {"state_machine": "order-flow", "permission_set": "AdminAccess", "file_type": "a-tide"},
            ["order-flow", "AdminAccess", "a-tide"],
        ),
        ({"output": "low-water", "scope": "tide_log"}, ["low-water", "tide_log"]),
        (
            {"type": "7c41e9b", "kind": "web-7f9c", "state": "tide-4471"},
            ["7c41e9b", "web-7f9c", "tide-4471"],
        ),
        (
            {"start_time": "9:30", "end_time": "10:15", "start_date": "1/5", "end_date": "5-12"},
            ["9:30", "10:15", "1/5", "5-12"],
        ),
        ({"head_office": "3/4", "width_height": "16:9"}, ["3/4", "16:9"]),
        ({"date_range": "5-12", "port_range": "80-90"}, ["5-12", "80-90"]),
        ({"start": 12, "pages": "10-20", "line_range": "100-150", "range": "1000-1200"}, []),
        ({"todo_id": "37", "plan_id": 12, "todo_list_id": "417"}, ["37", "12", "417"]),
        ({"todos": [{"id": "417"}], "pages": ["1-5"]}, ["417"]),
        ({"todoList": [{"id": 3}], "encoding": "utf-8"}, []),
        ({"type": "k8s-secret", "format": "h264-mp4"}, []),
    ],
)
def test_what_an_argument_needs(arguments: Any, needed: list[str]) -> None:
    assert values(arguments) == needed


def test_plain_words_of_a_parameter_with_few_values_are_its_settings() -> None:
    calls = [MadeCall("list", {"view": word}) for word in ("wide", "long", "wide")]
    assert setting_slots(calls) == frozenset()
    calls.append(calls[0])
    settings = setting_slots(calls)
    assert settings == {("list", "view")}
    assert not [*things_of(calls[0], settings)]


def index_of(value: str, *texts: str) -> ThingIndex:
    kinds: list[Any] = ["result" if text.startswith("$") else None for text in texts]
    turns = (
        Turn("tool", text.lstrip("$"), kind=kind) for text, kind in zip(texts, kinds, strict=True)
    )
    return ThingIndex([Message(turn, "line") for turn in turns], [value])


@pytest.mark.parametrize(
    ("value", "text", "is_held"),
    [
        ("main.py", "tests/main.py has a test", False),
        ("main.py", "old-main.py", False),
        ("main.py", "Look at ./main.py.", True),
        ("main.py", '{"files": "a.py\\nmain.py\\nb.py"}', True),
        ("/home/me/shop/src/coupon.py", "in src/coupon.py:12", True),
        ("/home/me/shop/src/coupon.py", "in coupon.py", True),
        ("src/coupon.py", "(/home/me/shop/src/coupon.py)", True),
        ("src/coupon.py", "lib/src/coupon.py", False),
        (r"C:\shop\main.py", r"Read C:\shop\main.py first", True),
        ("release/2026-11", "origin/release/2026-11", True),
        ("/srv/app", "see /srv/app/big.py", True),
        ("7c41e9b", "7c41e9b Check ports", True),
        ("7c41e9b", "7c41e9bd", False),
        ("HAT1", "HAT1-B", False),
        ("1250", "It costs 1,250.00", True),
    ],
)
def test_a_thing_is_found_as_a_whole(value: str, text: str, is_held: bool) -> None:
    assert bool(index_of(value, text).places(value)) == is_held


def test_a_shorter_path_is_the_same_file_only_if_one_file_ends_with_it() -> None:
    value, short = "/home/me/shop/src/coupon.py", "in src/coupon.py"
    assert len(index_of(value, value, short).places(value)) == 2
    assert len(index_of(value, value, short, "/home/me/old/src/coupon.py").places(value)) == 1
    # A name that a tool returned alone is a file of its own.
    assert len(index_of(value, value, "coupon.py").places(value)) == 2
    assert len(index_of(value, value, "$coupon.py").places(value)) == 1


def test_a_short_number_needs_the_name_of_its_parameter_in_its_line() -> None:
    text = "12 rows\nSeats: 12 of them\n12 more"
    places = index_of("12", text).places("12", "seats")
    assert [text[place.start - 7 : place.end] for place in places] == ["Seats: 12"]


def test_lines_end_in_json_where_it_escapes_their_ends() -> None:
    text = '{"out": "rows: 9\\nseats: 12\\nbeds: 13"}'
    for value, name, is_held in (
        ("12", "seats", True),
        ("12", "beds", False),
        ("9", "seats", False),
    ):
        assert bool(index_of(value, text).places(value, name)) == is_held
