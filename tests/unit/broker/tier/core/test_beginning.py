"""Who may write a tier, and whether an empty member begins with it."""

from __future__ import annotations

import msgspec
import pytest
from gantry_broker.tier.core.beginning import (
    BeginEmpty,
    CannotBegin,
    CopyTier,
    TakeTier,
    beginning,
    not_owned,
)
from gantry_protocol.tier.chain import ChainState
from gantry_protocol.tier.keys import Pair

OLD = ChainState(shard="old", v=7, pair=Pair(3, 1), start=0, end=100)
TAKEN = msgspec.structs.replace(OLD, v=8, pair=Pair(10_003, 0), taker="new", taken_v=8)
LIVED = msgspec.structs.replace(TAKEN, v=9, pair=Pair(10_004, 1), end=200)


@pytest.mark.parametrize(
    ("chain", "owner", "former", "wanted"),
    [
        pytest.param(OLD, "new", "old", TakeTier(), id="of-the-former"),
        pytest.param(TAKEN, "new", "old", CopyTier(), id="taken-by-us"),
        pytest.param(LIVED, "new", "old", BeginEmpty(), id="our-master-has-claimed"),
        pytest.param(LIVED, "third", "new", TakeTier(), id="taken-again"),
    ],
)
def test_an_empty_member(chain: ChainState, owner: str, former: str, wanted: object) -> None:
    assert beginning(chain, owner=owner, former=former) == wanted


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        pytest.param(ChainState(shard="old"), "holds nothing", id="no-version"),
        pytest.param(
            msgspec.structs.replace(OLD, start=100), "holds nothing", id="claimed-and-empty"
        ),
        pytest.param(
            msgspec.structs.replace(OLD, base=2, base_end=40), "below offset 40", id="oldest-gone"
        ),
        pytest.param(TAKEN, "belongs to group new, not to old", id="another-was-first"),
        pytest.param(LIVED, "belongs to group new, not to old", id="another-lives"),
    ],
)
def test_refusals(chain: ChainState, reason: str) -> None:
    found = beginning(chain, owner="third", former="old")
    assert isinstance(found, CannotBegin)
    assert reason in found.reason


def test_only_the_owner_claims() -> None:
    assert not not_owned(OLD, "old")
    assert not not_owned(LIVED, "new")
    assert "belongs to group new, not to old" in not_owned(LIVED, "old")
    assert "belongs to group old, not to new" in not_owned(OLD, "new")
    assert not not_owned(msgspec.structs.replace(OLD, base=2), "new"), "nobody knows any more"
