"""Bugs in how addresses are found while DNS does not answer (``gantry_protocol.lookups``)."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, UnitTests
from sim.mutants.planting import Edit

LOOKUPS = "gantry_protocol.lookups:Lookups"
TESTS = "unit/protocol/test_lookups.py"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    killed_by = UnitTests(f"{TESTS}::{killer}")
    return Mutant(name, "lookups", what, (Edit(place, text, other),), killed_by)


MUTANTS = (
    _mutant(
        "no-address-without-dns",
        "who lost a connection while DNS is away finds nobody until it is back",
        f"{LOOKUPS}.find",
        "known = self._known.get(host)",
        "known = None",
        "test_a_name_without_an_answer_keeps_its_address",
    ),
    _mutant(
        "old-address-preferred",
        "a pod that moved is sought where it was, although DNS knows better",
        f"{LOOKUPS}.find",
        "(not lookup.done() or _silent(lookup.exception()))",
        "known",
        "test_a_pod_that_moved_is_found_at_once",
    ),
    _mutant(
        "silence-waited-for",
        "each connection waits for DNS as long as the resolver does, tens of seconds",
        f"{LOOKUPS}.find",
        "timeout=None if known is None else ANSWER_WITHIN_S",
        "timeout=None",
        "test_silence_is_not_waited_for_longer_than_a_moment",
    ),
    _mutant(
        "gone-name-found",
        "a pod that was deleted is sought at an address that others may have by now",
        "gantry_protocol.lookups:_silent",
        " and error.errno not in THERE_IS_NONE",
        "",
        "test_a_name_that_is_gone_has_no_old_address",
    ),
    _mutant(
        "gone-name-remembered",
        "the address of a name that was gone comes back once DNS is silent",
        f"{LOOKUPS}._ended",
        "elif not _silent(lookup.exception()):",
        "elif False:",
        "test_a_name_that_is_gone_has_no_old_address",
    ),
    _mutant(
        "late-answer-dropped",
        "an answer that nobody waited for is not remembered",
        f"{LOOKUPS}._ended",
        "self._known[host] = lookup.result()",
        "self._known.setdefault(host, '10.0.0.1')",
        "test_an_answer_that_comes_late_is_the_next_ones",
    ),
    _mutant(
        "each-asks-for-itself",
        "one name without an answer takes all threads of the executor",
        f"{LOOKUPS}.find",
        "lookup = self._under_way.get(host)",
        "lookup = None",
        "test_lookups_are_few_at_a_time_and_one_of_a_name",
    ),
    _mutant(
        "threads-without-bound",
        "names without an answer take all threads of the executor, which other work waits for",
        f"{LOOKUPS}._look_up",
        "async with self._places:",
        "if True:",
        "test_lookups_are_few_at_a_time_and_one_of_a_name",
    ),
    _mutant(
        "memory-of-names-without-bound",
        "every name that was ever asked for is remembered",
        f"{LOOKUPS}._ended",
        "if len(self._known) > KNOWN_MAX:",
        "if False:",
        "test_what_is_remembered_has_a_bound",
    ),
)
