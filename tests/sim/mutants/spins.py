"""Bugs that make the operator look at a resource in vain, or ask for what it has no right to."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests, one_edit
from sim.mutants.planting import Edit

_mutant = one_edit("gantry_operator")
_TESTS = "unit/operator/test_spins.py::"
_AT_WORK = UnitTests(f"{_TESTS}test_a_group_that_comes_up_is_looked_at_now_and_then")
_SUMMARY = 'body = status.to_object() | {"summary": seen.meta.resource_version}'


def _never_the_same(where: str) -> tuple[Edit, ...]:
    """A status that differs in each look, and each of its writes is news."""
    put = "return self._cache.put(kind, await self._api.apply_status(kind, body))"
    take = "return take(self._cache, kind, await self._api.apply_status(kind, body))"
    return (
        Edit(f"gantry_operator.plan.{where}", "body = status.to_object()", _SUMMARY),
        Edit("gantry_operator.reconcile.apply:Applier._write_status", take, put),
    )


MUTANTS = (
    Mutant(
        "status-never-the-same",
        "spins",
        "each look writes another status, whose write brings the next look",
        _never_the_same("controller:plan_controller_group"),
        _AT_WORK,
    ),
    Mutant(
        "status-never-the-same-in-a-world",
        "spins",
        "each look writes another status, whose write brings the next look",
        _never_the_same("broker:_write"),
        Seeds("product-operator", 1),
    ),
    _mutant(
        "looked-at-again-without-a-pause",
        "spins",
        "a group that comes up is looked at all the time",
        "plan.broker:_check_again",
        "return [CheckAgain(after_s=STEP_CHECK_S)]",
        "return [CheckAgain(after_s=0.0)]",
        _AT_WORK,
    ),
    _mutant(
        "manifest-never-the-same",
        "spins",
        "each look applies every object, since the time is in them",
        "builders.meta:sealed",
        "digest(manifest)",
        'digest([manifest, __import__("time").time_ns()])',
        _AT_WORK,
    ),
    _mutant(
        "own-writes-are-changes",
        "spins",
        "an operator that changes an object all the time is taken for one that is kept busy",
        "reconcile.spins:_of_owned",
        'meta.get("uid")',
        "meta",
        UnitTests(f"{_TESTS}test_what_the_operator_writes_is_no_news"),
    ),
    _mutant(
        "looks-of-others-are-a-row",
        "spins",
        "a group that others' events are about is told to spin",
        "reconcile.spins:follow",
        "not row.last.causes or ",
        "",
        UnitTests(f"{_TESTS}test_what_a_row_is"),
    ),
    Mutant(
        "secret-applied",
        "rights",
        "the operator asks for a right to Secrets that the chart does not give it",
        (
            Edit(
                "gantry_operator.reconcile.quorum_secrets:Secrets.ensure",
                "self._api.create(",
                "self._api.apply(",
            ),
        ),
        Seeds("product-operator", 1),
    ),
    Mutant(
        "claims-listed",
        "rights",
        "the operator lists volumes, which it may read by name only",
        (
            Edit(
                "gantry_operator.reconcile.claims:Claims._get",
                "return await self._api.get(CLAIM, namespace, name)",
                "return {one['metadata']['name']: one async for one in "
                "self._api.list_all(CLAIM, namespace)}.get(name)",
            ),
        ),
        Seeds("product-operator", 1),
    ),
)
