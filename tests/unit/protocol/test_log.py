"""Log lines."""

import io
import logging
import re
from collections.abc import Iterator

import pytest
from gantry_protocol.process import log


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, gantry = logging.getLogger(), logging.getLogger("gantry")
    handlers, levels = root.handlers[:], (root.level, gantry.level)
    stream = io.StringIO()
    log.setup("broker", stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    gantry.setLevel(levels[1])


def test_an_event_is_one_line_of_pairs(stream: io.StringIO) -> None:
    log.get("ha", group="a").bind(epoch=3).info("master changed", broker_id=2, clean=True)
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info component=broker source=ha "
        r'event="master changed" group=a epoch=3 broker_id=2 clean=true\n',
        stream.getvalue(),
    )


def test_nothing_a_peer_sends_can_forge_a_line(stream: io.StringIO) -> None:
    log.get("x").warning("refused", topic='a"\nlevel=error event=forged', empty="", none=None)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert r'topic="a\"\nlevel=error event=forged" empty="" none=null' in text


def test_long_values_are_cut(stream: io.StringIO) -> None:
    log.get("x").info("long", value="v" * 100_000)
    assert len(stream.getvalue()) < 1200


def test_levels(stream: io.StringIO) -> None:
    log.get("x").debug("quiet")
    log.get("x").error("loud")
    logging.getLogger("aiohttp.access").info("library chatter")
    logging.getLogger("kopf").warning("library %s", "warning")
    lines = stream.getvalue().splitlines()
    assert [line.partition(" event=")[2] for line in lines] == ["loud", '"library warning"']
    assert "source=kopf" in lines[1]
    assert " level=error " in lines[0]


def test_a_fault_of_ours_brings_its_traceback(stream: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        log.get("x").exception("handler failed", error, code=10)
    assert 'event="handler failed" code=10 error=broken\nTraceback' in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("ValueError: broken")
