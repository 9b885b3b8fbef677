"""What is kept is measured with all that it holds, and leaves when others need the room."""

import gc
import tracemalloc
import weakref

import numpy as np
import pandas as pd
import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.page.files import UPLOADS, DialogFile
from fdkvc.player.moments import Spoken
from fdkvc.player.run import DialogChoice, build_run
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import World, scenario_named
from fdkvc.ui import lru
from fdkvc.ui.lanes import load_run
from fdkvc.ui.lru import ByteLRU, cached, size_of
from tests.examples import dialogs_of

MEGABYTE = 1_000_000
DIALOG = dialogs_of("rental")[0]


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(MEGABYTE, np.uint8),
        np.zeros((2, MEGABYTE // 2), np.uint8)[:, :1],
        {"deep": [("x" * MEGABYTE,)]},
        [np.zeros(MEGABYTE, np.uint8)] * 3,
        pd.DataFrame({"number": np.zeros(MEGABYTE // 8)}),
        pd.DataFrame({"text": [f"{number:0100000}" for number in range(10)]}),
        pd.DataFrame({"text": [f"{number:0100000}" for number in range(10)]}, dtype=object),
        DialogFile("a", "x" * MEGABYTE, ()),
    ],
    ids=["array", "view", "nested", "thrice the same", "table", "text", "objects", "dataclass"],
)
def test_a_size_counts_all_that_is_held_and_each_of_it_once(value: object) -> None:
    assert size_of(value) == pytest.approx(MEGABYTE, rel=0.01)


def test_a_size_is_the_memory_that_a_run_over_a_real_dialog_takes() -> None:
    build_run(Spoken("first", lexical_recording(DIALOG)), policy_named("fd-kvc"), 64)  # imports
    gc.collect()
    tracemalloc.start()
    try:
        run = build_run(Spoken("rental", lexical_recording(DIALOG)), policy_named("fd-kvc"), 64)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size_of(run) == pytest.approx(taken, rel=0.25)


def test_a_size_counts_no_code() -> None:
    assert size_of([DialogFile, np, size_of, np.sum]) < 1000


def test_what_was_used_the_longest_ago_leaves_first() -> None:
    stored: ByteLRU[bytes] = ByteLRU(3500)
    for key in "abc":
        stored.put(key, bytes(1000))
    assert stored.get("a") is not None

    stored.put("d", bytes(1000))

    assert [key for key in "abcd" if stored.get(key) is not None] == ["a", "c", "d"]
    assert stored.size <= stored.most


def test_the_last_one_stays_whatever_its_size_and_one_key_stands_for_one_value() -> None:
    stored: ByteLRU[bytes] = ByteLRU(3500)
    stored.put("small", bytes(10))

    for _ in range(3):
        stored.put("large", bytes(5000))

    assert stored.get("small") is None
    assert len(stored.get("large") or b"") == 5000
    assert stored.size == size_of(bytes(5000))

    stored.put("small", bytes(10))
    assert stored.get("large") is None
    assert stored.size == size_of(bytes(10))


def test_what_was_made_is_found_again_by_equal_arguments_and_made_anew_by_others() -> None:
    made = []

    @cached
    def make(*arguments: object) -> str:
        made.append(arguments)
        return f"made of {arguments}"

    one, other = DialogFile("a", "", ()), DialogFile("a", "", ())
    asked = [(1, "a", None), (1, ("a", None)), (one, 1), (other, 1), ((one,), 1)]

    for arguments in [*asked, *asked]:
        assert make(*arguments) == f"made of {arguments}"

    assert made == asked


def test_a_file_does_not_live_on_because_something_was_made_of_it() -> None:
    @cached
    def name_of(files: tuple[DialogFile, ...]) -> str:
        return files[0].name

    file = DialogFile("a", "", ())
    ended = weakref.ref(file)
    assert name_of((file,)) == "a"

    del file

    assert ended() is None


def test_what_values_share_counts_once_and_values_are_dropped() -> None:
    shared, unshared = np.zeros(MEGABYTE // 2, np.int8), np.zeros(MEGABYTE // 4, np.int8)
    stored: ByteLRU[object] = ByteLRU(MEGABYTE)
    for name in "abc":
        stored.put(name, [shared, name])
    assert stored.size < 0.51 * MEGABYTE
    stored.put("b", unshared)  # a and c still hold it
    stored.put("a", None)
    assert 0.75 * MEGABYTE < stored.size < 0.76 * MEGABYTE
    stored.put("c", None)
    assert stored.size < 0.26 * MEGABYTE
    assert stored.get("b") is unshared
    stored.put("b", None)
    assert 0 <= stored.size <= 100


def test_files_and_what_is_made_of_them_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    store: ByteLRU[object] = ByteLRU(MEGABYTE)
    monkeypatch.setattr(lru, "STORE", store)

    @cached
    def made_of(name: str) -> bytes:
        return bytes(MEGABYTE // 4)

    for number in range(8):  # windows that were closed
        name = f"{number}.json"
        UPLOADS.put(name, DialogFile(name, "x" * (MEGABYTE // 4), ()))
        made_of(name)
        assert store.size <= MEGABYTE
    found = [UPLOADS.get(f"{number}.json") for number in range(8)]
    assert found[-1] is not None
    assert found[:5] == [None] * 5


def test_many_runs_take_no_more_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    memory: ByteLRU[object] = ByteLRU(MEGABYTE)
    monkeypatch.setattr(lru, "STORE", memory)
    policy, ended = policy_named("fifo"), []
    for seed in range(6):
        choice = DialogChoice(scenario_named("mixed"), seed, World()), policy, 16, ()
        run = load_run(*choice)
        assert load_run(*choice) is run
        assert memory.size <= memory.most
        ended.append(weakref.ref(run))

    alive = [reference() is not None for reference in ended]
    assert alive[-1]
    assert not alive[0]
