"""Every reader of foreign bytes, with arbitrary bytes and with what once broke one.

``make fuzz`` looks further, guided by coverage; what it finds is put into ``tests/fuzz/corpus``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fuzz_seeds import seeds
from support.fuzz_targets import HEADERS, TARGETS

CORPUS = Path(__file__).resolve().parents[2] / "fuzz" / "corpus"
FOUND = sorted(path for path in CORPUS.rglob("*") if path.is_file())
BYTES_MAX = 4096  # of a corpus file: small, or it says nothing


SEEDS = seeds()


def test_there_is_something_honest_for_every_target() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    assert len(HEADERS) > 40


@pytest.mark.parametrize("name", TARGETS)
def test_honest_bytes(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150, deadline=None)
@given(noise=st.binary(max_size=200))
def test_noise(name: str, noise: bytes) -> None:
    TARGETS[name](noise)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_bytes(name: str, data: st.DataObject) -> None:
    honest = bytearray(data.draw(st.sampled_from(SEEDS[name])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(honest)))
        match data.draw(st.sampled_from(["set", "cut", "put"])):
            case "set" if at < len(honest):
                honest[at] = data.draw(st.integers(0, 255))
            case "cut":
                del honest[at : at + data.draw(st.integers(1, 8))]
            case _:
                honest[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    TARGETS[name](bytes(honest))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once(path: Path) -> None:
    assert path.stat().st_size <= BYTES_MAX
    TARGETS[path.parent.name](path.read_bytes())
