"""A map of very many names, against a dict."""

from __future__ import annotations

import tracemalloc

import pytest
from gantry_broker.store.tables import compact
from gantry_broker.store.tables.compact import CompactRows, PlacedRows
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.text("aäb\0", max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1)),
        st.tuples(st.just("pop"), NAMES, st.just(0), st.just(0)),
    ),
    max_size=120,
)


@pytest.fixture(autouse=True, scope="module")
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "SMALL_MAX", 3)
        patch.setattr(compact, "FRESH_MAX", 2)
        patch.setattr(compact, "BLOCK_MAX", 4)
        yield


@given(steps=STEPS)
def test_it_is_a_map(steps: list[tuple[str, str, int, int]]) -> None:
    made, model = CompactRows(), {}
    for what, name, offset, hour in steps:
        if what == "put":
            assert made.put(name, (offset, hour)) == (name not in model)
            model[name] = (offset, hour)
        else:
            assert made.pop(name) == (model.pop(name, None) is not None)
        assert made.get(name) == model.get(name)
        assert len(made) == len(model)
    assert dict(made.items()) == model
    assert all(made.get(name) == row for name, row in model.items())


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "pop", "drop"]),
            st.tuples(st.sampled_from("ab"), st.integers(0, 1)),
            st.sampled_from(["g", "h", "i"]),
            st.integers(0, 2**63 - 1),
        ),
        max_size=60,
    )
)
def test_maps_by_place_are_maps(steps: list[tuple[str, tuple[str, int], str, int]]) -> None:
    made, model = PlacedRows(), {}
    for what, place, name, offset in steps:
        if what == "put":
            made.put(place, name, (offset, 1))
            model[place, name] = (offset, 1)
        elif what == "pop":
            made.pop(place, name)
            model.pop((place, name), None)
        else:
            dropped = {key for key in model if key[0] == place}
            assert {(place, name) for name in made.drop(place)} == dropped
            model = {key: row for key, row in model.items() if key[0] != place}
        assert made.get(place, name) == model.get((place, name))
        assert made.count == len(model)
    assert set(made.places()) == {place for place, _ in model}
    found = {(place, name): row for place in made.places() for name, row in made.items(place)}
    assert found == model


def test_a_place_with_one_name_takes_little() -> None:
    tracemalloc.start()
    made = PlacedRows()
    for number in range(20_000):
        made.put(
            (f"%LMQ%$parent$lite-{number:08}", 0), "".join(["consumer", "-group"]), (number, 0)
        )
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 20_000 * 420, "its own name and place take 200 of them"


def test_it_may_change_while_it_is_gone_through() -> None:
    made = CompactRows()
    for number in range(100):
        made.put(f"{number:03}", (number, 0))
    seen = {}
    for name, row in made.items():
        seen[name] = row
        made.pop(name)
        made.put(f"new {name}", (0, 0))
    assert seen.keys() >= {f"{number:03}" for number in range(100)}


def test_a_name_takes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SMALL_MAX", 512), ("FRESH_MAX", 128), ("BLOCK_MAX", 1024)):
        monkeypatch.setattr(compact, name, value)
    tracemalloc.start()
    made = CompactRows()
    for number in range(20_000):
        made.put(f"consumer-group-{number:08}", (number, 0))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 20_000 * 90, "a dict takes more than 200 bytes for each"
