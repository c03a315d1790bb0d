"""The order in which one pop looks at queues."""

from __future__ import annotations

import pytest
from gantry_broker.clients.core.pop.queue_order import queue_order
from gantry_protocol.settings.priority import PRIORITY_FACTOR, factor_of

URGENT = {"message.type": "PRIORITY"}


@pytest.mark.parametrize("factor", [0, 1, 30, 50, 99, 100])
@pytest.mark.parametrize("step", [1, 2, 4, 7, 100], ids="one of {}".format)
def test_so_many_pops_in_a_hundred_begin_with_the_last_queue(factor: int, step: int) -> None:
    """Whichever pops are those of one group, as long as they are spread evenly."""
    orders = [queue_order(URGENT, 8, turn * step, factor) for turn in range(8_000)]
    assert all(sorted(order) == list(range(8)) for order in orders)
    down = sum(order == list(range(7, -1, -1)) for order in orders)
    assert abs(down - 80 * factor) <= 80
    firsts = {order[0] for order in orders if order[1] == (order[0] + 1) % 8}
    assert factor == 100 or firsts == set(range(8)) or step % 2 == 0


@pytest.mark.parametrize(
    ("text", "factor"), [("0", 0), ("100", 100), ("101", 100), ("-1", 100), ("", 100), ("x", 100)]
)
def test_a_factor(text: str, factor: int) -> None:
    assert factor_of({PRIORITY_FACTOR: text}) == factor
    assert factor_of({}) == 100
