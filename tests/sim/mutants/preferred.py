"""Bugs in where a master is wished: what elections prefer, and when a master moves back."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests, one_edit
from sim.mutants.planting import Edit

_operator = one_edit("gantry_operator")
_controller = one_edit("gantry_controller")
_ELECTED = "unit/controller/metadata/test_preference.py::"
_PLANNED = "unit/operator/test_preferred.py::"
_FLEET = "unit/operator/test_moves.py::"


def _planned(name: str, breaks: str, where: str, old: str, new: str, test: str) -> Mutant:
    killer = UnitTests(f"{_PLANNED}{test}")
    return _operator(name, "operator", breaks, f"plan.preferred:{where}", old, new, killer)


MUTANTS = (
    _controller(
        "the-worst-place-is-preferred",
        "metadata",
        "an election takes the member that is in none of the wished zones",
        "metadata.election:best",
        "-rank(places, item.broker_id)",
        "rank(places, item.broker_id)",
        UnitTests(f"{_ELECTED}test_the_first_place_that_has_a_living_member_wins"),
    ),
    _controller(
        "a-place-before-a-connection",
        "metadata",
        "a corpse whose heartbeat has not timed out yet is elected for its zone",
        "metadata.election:best",
        "item.connected,",
        "True,",
        UnitTests(f"{_ELECTED}test_who_is_about_to_go_or_has_no_connection_is_not_preferred"),
    ),
    _planned(
        "moved-from-an-unknown-zone",
        "a master that may be where it is wished is moved away",
        "prefer",
        "if pod is None or not here:",
        "if pod is None:",
        "test_a_zone_that_is_not_known_moves_nobody",
    ),
    _planned(
        "moved-while-a-replica-is-behind",
        "a mastership moves in a group that is not well",
        "prefer",
        "amiss = busy or _amiss(group, load)",
        "amiss = busy",
        "test_nothing_moves_while_anything_is_amiss",
    ),
    _planned(
        "moved-against-a-persons-word",
        "what spec.switchover asked for is undone",
        "prefer",
        '(asked.id, "Completed", pod.ordinal)',
        '(asked.id, "Refused", pod.ordinal)',
        "test_what_a_person_asked_for_stays_while_the_request_stays",
    ),
    _planned(
        "moved-as-soon-as-it-is-back",
        "a replica that restarts again and again is given the mastership each time",
        "_Case.towards",
        "(began or now, moment(pod.ready_since))",
        "(began or now, None)",
        "test_who_came_back_a_moment_ago_has_to_stay_first",
    ),
    _planned(
        "the-wait-goes-on-through-an-election",
        "a group that elects again and again is moved in between",
        "_Case.towards",
        'elif old is None or old.state not in ("Waiting", "Due") or self.since is None:',
        'elif old is None or old.state not in ("Waiting", "Due"):',
        "test_an_election_begins_the_wait_anew",
    ),
    _planned(
        "masters-go-to-and-fro",
        "a mastership that does not last moves back every five minutes for ever",
        "doubled",
        "min(2 * wait_s, WAIT_MAX_S)",
        "wait_s",
        "test_one_that_does_not_stay_there_has_to_wait_twice_as_long_each_time",
    ),
    _planned(
        "a-restart-takes-its-place-away",
        "elections prefer nobody while the pods of the wished zone restart",
        "places",
        'or before.get(member.broker_id, "")',
        'or ""',
        "test_a_member_stays_where_it_was_declared_while_its_pod_is_not_seen",
    ),
    Mutant(
        "a-master-never-moves-back",
        "operator",
        "a master stays where a failover has left it, whatever zone is wished",
        (
            Edit(
                "gantry_operator.plan.preferred:_Case._move",
                "PlanStep(Reason.MOVING_TO_ZONE, text, action)",
                "None",
            ),
        ),
        Seeds("product-zones", 1),
    ),
    _operator(
        "a-whole-zone-moves-at-once",
        "operator",
        "hundreds of groups have a gap in the same second when a zone is back",
        "reconcile.moves:Moves.turn_of",
        "if self._somebody_moves(key, now_s):",
        "if False:",
        UnitTests(f"{_FLEET}test_another_operators_move_is_waited_for_but_not_for_ever"),
    ),
    _operator(
        "two-turns-before-the-first-is-seen",
        "operator",
        "two groups move at once, since the cache is behind what was planned",
        "reconcile.moves:Moves.turn_of",
        "if other != key and now_s - given_s < GIVEN_S and self._has_use(other):",
        "if False:",
        UnitTests(f"{_FLEET}test_one_moves_at_a_time"),
    ),
)
