"""Fails a test whose worlds the planner does not decide about in the same way from a file."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import gantry_operator.plan
import pytest
from gantry_operator.cache import Key
from gantry_operator.decisions.recorder import Decision, DecisionRing, written
from gantry_operator.decisions.replay import ALTERED, recording_of, replayed
from gantry_operator.metrics import Metrics
from prometheus_client import CollectorRegistry

OF_A_TEST_MAX = 4
"""The first decisions of a test, half of them, and the last."""
_PLANNERS = ("plan_broker_group", "plan_controller_group", "plan_front_group")


def recorder(**bounds: Any) -> DecisionRing:
    return DecisionRing(Metrics(CollectorRegistry()), "groups", **bounds)


@contextlib.contextmanager
def decided_again(module: ModuleType) -> Iterator[DecisionRing]:
    """Holds for what tests of a module plan inside, also by a reconciler."""
    ring = recorder()

    def watched(planner: Any) -> Any:
        def plan(seen: Any, now: dt.datetime, **how: Any) -> list[Any]:
            actions: list[Any] = planner(seen, now, **how)
            if how.get("announces", True):
                key = Key(type(seen).__name__, "mq", str(len(ring.of(None)) + ring.dropped))
                ring.note(key, seen, b"", now, actions)
            return actions

        return plan

    with pytest.MonkeyPatch.context() as patch:
        for name in _PLANNERS:
            patch.setattr(gantry_operator.plan, name, watched(getattr(gantry_operator.plan, name)))
        if hasattr(module, "plan_entity"):
            patch.setattr(module, "plan_entity", watched(module.plan_entity))
        yield ring
    made = ring.of(None)
    half = OF_A_TEST_MAX // 2
    again([*made[:half], *made[half:][-half:]])


def again(made: list[Decision]) -> None:
    """Raises AssertionError: a decision is not the same from a file."""
    recording = recording_of(written(made, version="1", dropped=0), "file")
    assert len(recording.decisions) == len(made)
    for one in recording.decisions:
        outcome = replayed(recording, one, one.name)
        assert outcome.differences == (), outcome.differences[0]
        assert outcome.note in ("", ALTERED)
        given = json.dumps([one.given, recording.parts])
        assert not outcome.note or "[redacted" in given, "nothing was to be redacted"
