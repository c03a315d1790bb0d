"""When the log may be trimmed: one case per term of the rule."""

from __future__ import annotations

import msgspec
import pytest
from gantry_broker.retention.core.rules import Keep, Trim, WriteState
from gantry_broker.tier.core.retention import Facts, decide
from gantry_protocol.types import Offset

STARTS = tuple(Offset(start) for start in (0, 100, 200, 300, 400))
FACTS = Facts(
    local_bytes=150,
    starts=STARTS,
    log_start=Offset(0),
    end=Offset(480),
    confirm=Offset(470),
    committed_end=Offset(460),
    tail_at=Offset(450),
    readable_end=Offset(460),
    whole_from=Offset(440),
    writes=True,
)


def facts(**changes: object) -> Facts:
    return msgspec.structs.replace(FACTS, **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, Trim(Offset(300)), id="retention keeps 150 of 470, in whole files"),
        pytest.param({"local_bytes": 0}, Trim(Offset(400)), id="never the file that is written"),
        pytest.param({"local_bytes": 370}, Trim(Offset(100)), id="more is kept"),
        pytest.param({"committed_end": Offset(299)}, Trim(Offset(200)), id="the tier ends"),
        pytest.param({"tail_at": Offset(299)}, Trim(Offset(200)), id="the tier's last record"),
        pytest.param({"readable_end": Offset(150)}, Trim(Offset(100)), id="the index ends"),
        pytest.param({"pins": (Offset(250), Offset(320))}, Trim(Offset(200)), id="a replica reads"),
        pytest.param({"whole_from": Offset(180)}, Trim(Offset(100)), id="the state is older"),
        pytest.param({"whole_from": Offset(99)}, WriteState(), id="the state is too old"),
        pytest.param({"whole_from": None}, WriteState(), id="no state"),
    ],
)
def test_the_log_is_trimmed_to_the_least_of_all(
    changes: dict[str, object], expected: object
) -> None:
    assert decide(facts(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        pytest.param({"local_bytes": None}, "", id="no retention"),
        pytest.param({"local_bytes": 400}, "", id="nothing to trim"),
        pytest.param({"committed_end": None}, "does not know", id="unknown"),
        pytest.param({"tail_at": None}, "does not know", id="empty tier"),
        pytest.param({"committed_end": Offset(99)}, "up to 99", id="tier far behind"),
        pytest.param({"pins": (Offset(7),)}, "read from 7", id="a replica at the start"),
        pytest.param({"whole_from": None, "writes": False}, "master", id="a replica writes none"),
        pytest.param(
            {"whole_from": None, "state_bytes": 50, "state_end": Offset(300)},
            "grown",
            id="a state as long as the log",
        ),
    ],
)
def test_otherwise_it_is_kept_and_says_why(changes: dict[str, object], word: str) -> None:
    decision = decide(facts(**changes))
    assert isinstance(decision, Keep)
    assert word in decision.reason
    assert bool(decision.reason) == bool(word)
