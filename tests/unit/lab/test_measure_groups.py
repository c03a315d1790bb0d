"""The measurement of many groups starts as `make` starts it: nobody has set anything for it."""

from __future__ import annotations

import os

import pytest
from gantry_lab.measure import groups


class StartedError(Exception):
    """Brokers would be started now."""


async def test_its_brokers_may_go_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def brokers(*_: object) -> None:
        raise StartedError(os.environ["GANTRY_ALLOW_UNAUTHENTICATED"])

    monkeypatch.setenv("GANTRY_ALLOW_UNAUTHENTICATED", "of the tests")
    monkeypatch.delenv("GANTRY_ALLOW_UNAUTHENTICATED")
    monkeypatch.setattr(groups, "ManyGroups", brokers)
    with pytest.raises(StartedError, match="true"):
        await groups.main(3)
