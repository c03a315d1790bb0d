"""Bugs in what alarms are raised by: lag of consumer groups, and groups that nobody serves."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

LAG = "gantry_broker.clients.lag"
TESTS = "unit/broker/clients/test_lag.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    edit = Edit(f"{LAG}:{place}", text, other)
    return Mutant(name, "alarms", what, (edit,), UnitTests(f"{TESTS}::{killer}"))


MUTANTS = (
    Mutant(
        "unserved-with-a-dead-master",
        "alarms",
        "of a group whose brokers are all dead nobody hears, since its master stays on record",
        (
            Edit(
                "gantry_controller.liveness.watchman:Watchman.groups_unserved",
                "not self.may_serve(group)",
                "group.master is None",
            ),
        ),
        UnitTests(
            "unit/controller/liveness/test_watchman.py::"
            "test_a_group_of_which_nobody_is_heard_is_unserved"
        ),
    ),
    _mutant(
        "lag-of-who-is-there-only",
        "a consumer group that is gone has no lag, so nobody hears that it is gone",
        "ConsumerLag._counts",
        "present is None or (",
        "present is not None and (",
        "test_who_nobody_would_act_for_is_left_out",
    ),
    _mutant(
        "lag-of-a-topic-that-nobody-wants",
        "a topic that a group does not consume any more is behind for ever",
        "ConsumerLag._counts",
        "topic in present.topics and not present.is_broadcasting",
        "not present.is_broadcasting",
        "test_who_nobody_would_act_for_is_left_out",
    ),
    _mutant(
        "lag-of-the-newest",
        "the age of the queue that is behind least is told for all",
        "Lag.add",
        "min(stored_ms",
        "max(stored_ms",
        "test_the_first_message_of_all_queues_counts",
    ),
    _mutant(
        "lag-reads-the-disk-again",
        "each pass reads a record of every queue that is behind from the disk",
        "ConsumerLag._tell",
        "self._times = self._next_times",
        "self._times = {}",
        "test_a_message_that_stays_the_first_one_is_looked_up_once",
    ),
    _mutant(
        "lag-kept-of-a-passed-message",
        "the age is that of a message which was consumed since",
        "ConsumerLag._time",
        "known is not None and known[0] == first",
        "known is not None",
        "test_a_message_that_stays_the_first_one_is_looked_up_once",
    ),
    _mutant(
        "lag-of-the-shortest",
        "where there are too many groups, those that are behind longest are left out",
        "ConsumerLag._tell",
        "key=_first_the_longest)",
        "key=_first_the_longest, reverse=True)",
        "test_the_longest_behind_come_first_where_there_are_too_many",
    ),
)
