"""The queue that a proxy chooses for what is sent."""

from __future__ import annotations

import pytest
from gantry_proxy.core.routes import GroupQueues, of_mapped, of_message_group, writable
from gantry_proxy.producing import Producing

PLAIN = (GroupQueues("a", "a:1", 4, 4), GroupQueues("b", "b:1", 4, 4))
MAPPED = (
    GroupQueues("a", "a:1", 4, 4, 4, frozenset({0, 1})),
    GroupQueues("b", "b:1", 4, 4, 4, frozenset({2, 3})),
)


class Masters:
    """They know one route."""

    def __init__(self, groups: tuple[GroupQueues, ...]) -> None:
        self._groups = groups

    async def route(self, topic: str) -> tuple[GroupQueues, ...]:
        return self._groups


@pytest.mark.parametrize("customer", ["anna", "bert", "carl", "dora", "emil"])
async def test_a_message_group_has_one_queue(customer: str) -> None:
    """Of a mapped topic one of the cluster, by its number, which moves with its messages."""
    mapped = await Producing(Masters(MAPPED))._place("t", customer)  # type: ignore[arg-type]
    assert mapped == of_mapped(MAPPED, customer)
    assert mapped[1] in mapped[0].takes
    plain = await Producing(Masters(PLAIN))._place("t", customer)  # type: ignore[arg-type]
    assert plain == of_message_group(writable(PLAIN), customer)


async def test_other_messages_take_turns() -> None:
    producing = Producing(Masters(MAPPED))  # type: ignore[arg-type]
    places = {await producing._place("t", "") for _ in range(8)}
    assert places == set(writable(MAPPED))
