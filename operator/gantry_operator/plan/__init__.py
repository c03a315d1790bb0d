"""Plans, made by pure functions: observation and time in, actions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.plan.broker import plan_broker_group
from gantry_operator.plan.controller import plan_controller_group
from gantry_operator.plan.front import plan_front_group
from gantry_operator.plan.observed import BrokerObserved, FrontObserved

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.plan.actions import Action
    from gantry_operator.plan.observed import Observed

__all__ = ["plan"]


def plan(observed: Observed, now: dt.datetime, *, announces: bool = True) -> list[Action]:
    """All that is to be done now for one resource, in order, at most one of it disruptive.

    `announces`: where a change begins, the status says what will follow (`foresight`).
    """
    if isinstance(observed, BrokerObserved):
        return plan_broker_group(observed, now, announces=announces)
    if isinstance(observed, FrontObserved):
        return plan_front_group(observed, now)
    return plan_controller_group(observed, now)
