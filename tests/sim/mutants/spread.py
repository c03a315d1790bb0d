"""Bugs in the spreading of masters over processes of many groups (ADR 0073)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

MODULE = "gantry_controller.liveness.core.spread"
SPREAD = f"{MODULE}:Spread"
TESTS = "unit/controller/liveness/test_spread.py"
WATCHMAN = "unit/controller/liveness/test_watchman.py"
ASKING = "unit/broker/control/test_requests.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str = TESTS) -> Mutant:
    return Mutant(name, "spread", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    _mutant(
        "one-more-is-for-the-first-by-name",
        "masters move although all lead equally many, or one more",
        f"{MODULE}:goals",
        "(-led[process], process)",
        "process",
    ),
    _mutant(
        "who-leads-too-few-gives",
        "a mastership is passed round",
        f"{MODULE}:ways",
        "if beyond[process] > 0",
        "if beyond[process] >= 0",
    ),
    _mutant(
        "all-move-at-once",
        "a process that returns gets hundreds of masterships in one moment",
        f"{SPREAD}._decide",
        "while len(self._moves) < MOVES_AT_ONCE:",
        "while True:",
    ),
    _mutant(
        "moved-without-comparing-the-epoch",
        "a late move deposes a master that was elected meanwhile",
        f"{SPREAD}._try",
        "expected_epoch=group.master_epoch,",
        "",
    ),
    _mutant(
        "moved-in-the-name-of-a-person",
        "what was moved once stays there for minutes",
        f"{SPREAD}._try",
        "incarnation=group.master_incarnation,",
        "",
    ),
    _mutant(
        "moved-beside-an-election",
        "a group that has just asked for a master gets two elections",
        f"{SPREAD}._try",
        " or not self._overseer.claim(key)",
        "",
    ),
    _mutant(
        "back-for-no-time",
        "a process gets masterships in the moment it comes up",
        f"{SPREAD}._member_at",
        "since_s + BACK_S",
        "since_s",
    ),
    _mutant(
        "no-rest-after-an-election",
        "a mastership that has just moved moves again",
        f"{SPREAD}._rests",
        "since_s + REST_S, ",
        "",
    ),
    _mutant(
        "a-persons-move-undone",
        "what an administrator moved is taken back in seconds",
        f"{SPREAD}._rests",
        "self._by_hand_s.get(key, 0.0), ",
        "",
    ),
    _mutant(
        "failures-forgotten",
        "a process that cannot lead is given masterships every second",
        f"{SPREAD}._rests",
        ", *paused",
        "",
    ),
    _mutant(
        "a-process-that-goes-takes",
        "masterships move to a process that is about to end",
        f"{SPREAD}._look",
        "row.closed or row.beat.draining or row.beat.disk_stuck",
        "False",
    ),
    _mutant(
        "moved-beside-one-that-catches-up",
        "a member that catches up has to begin with another master",
        f"{SPREAD}._may_move",
        "member.broker_id in group.sync_state_set",
        "True",
    ),
    _mutant(
        "moved-amid-a-drain",
        "a group that is about to leave changes its master",
        f"{SPREAD}._may_move",
        "or group.key in state.drains",
        "",
    ),
    _mutant(
        "moved-while-producers-are-kept-away",
        "a group that an administrator closed changes its master",
        f"{SPREAD}._may_move",
        "or group.key in state.wiped",
        "",
    ),
    _mutant(
        "a-retired-group-moves",
        "a group that nobody serves any more goes through elections",
        f"{SPREAD}._may_move",
        "or group.retired",
        "",
    ),
    _mutant(
        "a-damaged-log-leads",
        "a mastership moves to a copy that is damaged",
        f"{SPREAD}._is_well",
        " or row.beat.log_damage",
        "",
    ),
    _mutant(
        "taken-before-it-follows",
        "a member that has not heard of the last master yet becomes the next",
        f"{SPREAD}._is_well",
        "and row.beat.epoch == group.master_epoch",
        "",
    ),
    _mutant(
        "elected-is-enough",
        "the next ones move although the last new masters do not act",
        f"{SPREAD}._follow_up",
        "if row is not None and row.beat.epoch == move.epoch:",
        "if True:",
    ),
    _mutant(
        "the-same-groups-tried-each-time",
        "groups that cannot move keep the others from being tried",
        f"{SPREAD}._decide",
        "_Tries(self._looks // max(1, len(pools)) * TRIES_MAX)",
        "_Tries(0)",
    ),
    _mutant(
        "spread-although-switched-off",
        "masters move although an administrator wants them to stay",
        "gantry_controller.liveness.watchman:Watchman._spread_masters",
        " and self._spreads",
        "",
        WATCHMAN,
    ),
    _mutant(
        "a-broker-asks-as-a-person-does",
        "masterships stay away from a process that returned for minutes",
        "gantry_broker.control.requests:hand_over",
        "incarnation=me.incarnation,",
        "",
        ASKING,
    ),
)
