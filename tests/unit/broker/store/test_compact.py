"""A map of very many names, against a dict."""

from __future__ import annotations

import tracemalloc

import pytest
from gantry_broker.store.tables import compact
from gantry_broker.store.tables.compact import CompactRows
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
