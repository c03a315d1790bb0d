"""Texts that are much alike are kept as what each has of its own."""

from __future__ import annotations

import itertools
import json
import random

from gantry_operator.packing import GROWTH, Packer
from hypothesis import given
from hypothesis import strategies as st


def like(name: str, **more: object) -> bytes:
    """A text as those of others, but for its name."""
    labels = {f"app.kubernetes.io/part-{n}": f"value {n}" for n in range(40)}
    return json.dumps({"metadata": {"name": name, "labels": labels}} | more).encode()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=200)), max_size=20))
def test_every_text_comes_back_whatever_came_before(texts: list[tuple[str, bytes]]) -> None:
    packer = Packer[str]()
    packed = [(text, packer.pack(place, text)) for place, text in texts]
    assert all(one.text() == text for text, one in packed)


def test_a_text_takes_what_it_has_of_its_own() -> None:
    packer = Packer[str]()
    first = packer.pack("", like("orders"))
    packed = packer.pack("", like("invoices"))
    assert packed.pattern is first.pattern
    assert len(packed.data) < len(like("invoices")) / 20


def test_the_same_text_is_packed_to_the_same() -> None:
    packer = Packer[str]()
    packer.pack("", like("orders"))
    assert packer.pack("", like("invoices")) == packer.pack("", like("invoices"))
    assert packer.pack("", like("invoices")) != packer.pack("", like("returns"))


def test_each_place_has_a_pattern_of_its_own() -> None:
    packer = Packer[str]()
    pods, services = packer.pack("pods", like("a")), packer.pack("services", like("b"))
    assert (pods.pattern, services.pattern) == (like("a"), like("b"))


def test_texts_that_grow_have_the_grown_one_as_their_pattern() -> None:
    packer = Packer[str]()
    noise = random.Random(1).randbytes(600).hex()
    young = packer.pack("", like("orders"))
    packer.pack("", like("orders", status=noise))
    grown = packer.pack("", like("invoices", status=noise))
    assert len(grown.data) < len(noise) / 10
    assert young.text() == like("orders"), "by the pattern that it was packed with"


def test_there_are_few_patterns() -> None:
    packer = Packer[str]()
    patterns = {packer.pack("", bytes(length)).pattern for length in range(1, 2000)}
    lengths = sorted(map(len, patterns))
    assert len(lengths) < 40
    assert all(b > GROWTH * a for a, b in itertools.pairwise(lengths))
