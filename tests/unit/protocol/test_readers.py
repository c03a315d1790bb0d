"""The attribute of topics that names the number of readers."""

from __future__ import annotations

import pytest
from gantry_protocol.settings.readers import READERS, parse_readers, readers_of


@pytest.mark.parametrize(
    ("text", "usual", "third", "most"),
    [
        pytest.param("", 1, 1, 1, id="nothing said"),
        pytest.param("0", 0, 0, 1, id="the master alone"),
        pytest.param("3", 3, 3, 3, id="each queue"),
        pytest.param("1;3=2;4=5", 1, 2, 5, id="two queues"),
        pytest.param("3;3=0", 3, 0, 3, id="all but one"),
    ],
)
def test_readers(text: str, usual: int, third: int, most: int) -> None:
    found = parse_readers(text)
    assert (found.of(0), found.of(3), found.most) == (usual, third, most)


@pytest.mark.parametrize(
    "text", ["x", "-1", "17", "3;", "3;x=1", "3;1", "3;1=2;1=3", "3;1=17", "²", "3;" * 400]
)
def test_what_does_not_read_is_refused_and_asks_for_no_readers(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_readers(text)
    assert readers_of({READERS: text}).most == 1


def test_a_topic_without_the_attribute_has_one_reader() -> None:
    assert readers_of({"message.type": "NORMAL"}).of(0) == 1
