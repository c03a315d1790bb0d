"""Bugs in messages for a certain moment, and in taking them back (``gantry_broker.clients``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

PARKED = "gantry_broker.clients.core.delay.parked"
LEVELS = "gantry_broker.clients.core.delay.levels"
RECALLS = "gantry_broker.clients.recall:Recalls"
SCHEDULE = "gantry_broker.clients.core.delay.schedule:Schedule"
WAITING = "mapped/test_waiting_messages.py"
STEPS, SCHEDULED, DELAYED = "core/test_timers.py", "core/test_schedule.py", "test_delayed.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    tests = UnitTests(f"unit/broker/clients/{killer}")
    return Mutant(name, "timers", what, (Edit(place, text, other),), tests)


MUTANTS = (
    _mutant(
        "late-steps-add-up",
        "a message of some hours comes seconds after its moment",
        f"{PARKED}:next_park",
        "int(left) - late_ms",
        "int(left)",
        STEPS,
    ),
    _mutant(
        "lateness-of-an-outage-forgotten",
        "a message that waited while there was no master comes as much too late",
        f"{SCHEDULE}.late_ms",
        "if message.offset < level.inherited:",
        "if False:",
        SCHEDULED,
    ),
    _mutant(
        "hour-is-the-last-step",
        "a message of an hour comes seconds after its moment",
        f"{LEVELS}:next_step",
        "wait_ms * 1.001 + _SPARE_MS > left_ms",
        "wait_ms > left_ms",
        STEPS,
    ),
    _mutant(
        "timer-parked-by-who-consumes",
        "a message that a consumer sends back waits for its moment again",
        f"{PARKED}:named_time",
        "TIMER_OUT_MS in properties or ",
        "",
        DELAYED,
    ),
    _mutant(
        "timer-follows-the-wall-clock",
        "a clock that jumps ahead delivers what was sent before at once",
        f"{SCHEDULE}.late_ms",
        "min(max(wall_ms - message.stored_at_ms - message.delay_ms, least_ms), most_ms)",
        "max(wall_ms - message.stored_at_ms - message.delay_ms, least_ms)",
        SCHEDULED,
    ),
    _mutant(
        "step-begins-without-position",
        "a message is delivered to its next step again by each master",
        "gantry_broker.clients.delivery:Delivery._append",
        "[*messages, progress]",
        "messages or [progress]",
        DELAYED,
    ),
    _mutant(
        "recall-dies-with-its-master",
        "a message that was taken back is delivered by the next master",
        f"{RECALLS}.__init__",
        "{group: until_s for group, _, _ in rows}",
        "{}",
        DELAYED,
    ),
    _mutant(
        "recall-answered-from-memory",
        "a recall that was answered is in no log",
        f"{RECALLS}.recall",
        "self._view.store.append([record], done)",
        "done(SendOutcome(ResponseCode.SUCCESS, None, ()))",
        DELAYED,
    ),
    _mutant(
        "recall-takes-what-is-sent-anew",
        "a message that is sent for another moment after a recall is acknowledged and lost",
        "gantry_broker.clients.recall:_group",
        " {due_ms} {unique_key} {topic}",
        " {unique_key}",
        DELAYED,
    ),
    _mutant(
        "recall-forgotten-while-timers-are-late",
        "a message that is late, since too few were in sync, comes though it was taken back",
        "gantry_broker.clients.delivery:Delivery._forget_recalls",
        "self.is_known and not any(",
        "self.is_known or any(",
        DELAYED,
    ),
    _mutant(
        "timer-holds-up-all-others",
        "one message whose queue moves stops all timers of its group",
        "gantry_broker.clients.delivery:Delivery._next_step",
        "isinstance(found, _HeldUp)",
        "False",
        WAITING,
    ),
    _mutant(
        "timer-of-a-lost-group-holds-up-all-others",
        "one message whose new group is not there stops all timers of its group",
        "gantry_broker.clients.delivery:Delivery._pass_on",
        "is_timer(parked) and ",
        "False and ",
        WAITING,
    ),
    _mutant(
        "level-keeps-the-moment",
        "a delayed message waits again for a moment at the group that its queue moved to",
        f"{PARKED}:park",
        "(*_OURS, *_TIMERS)",
        "_OURS",
        DELAYED,
    ),
    _mutant(
        "timer-looked-for-at-one-step",
        "a send for a moment is stored again by the next master",
        "gantry_broker.clients.send:Sender.sought",
        ", queue_id=-1)",
        ")",
        "test_resent.py",
    ),
    Mutant(
        "timers-trimmed",
        "timers",
        "the log is trimmed over a message that waits for its moment",
        (Edit("gantry_broker.member.pins:oldest_parked", "range(QUEUES)", "range(64)"),),
        UnitTests("unit/broker/member/test_delay_pins.py"),
    ),
)
