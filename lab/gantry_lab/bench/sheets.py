"""The tables of docs/performance.md: which figures each shows, in which order.

Those of `gantry_lab bench` follow from its cases. The others are of measurements beside the tests
(`make measure-groups`, `measure-queues`, `profile-broker`), which print the same lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gantry_lab.bench.broker.cases import BENCH as BROKERS
from gantry_lab.bench.controller.cases import BENCH as CONTROLLERS
from gantry_lab.bench.suite import Goal

if TYPE_CHECKING:
    from gantry_lab.bench.suite import Bench


class Sheet(NamedTuple):
    """A table of a page, between two comments of its own.

    Attributes:
        name: the benchmark whose figures it shows.
        rows: case and figure of each row.
        sentence: what shared the machine, in the last line.
        others: benchmarks that are shown beside it, where there are figures of them.
    """

    name: str
    rows: tuple[tuple[str, Goal], ...]
    sentence: str
    others: tuple[str, ...] = ()

    @property
    def begin(self) -> str:
        """The comment before it."""
        return f"<!-- {self.name} figures: begin -->"

    @property
    def end(self) -> str:
        """The comment after it."""
        return f"<!-- {self.name} figures: end -->"


def sheet_of(bench: Bench[Any, Any]) -> Sheet:
    """The goals of all cases."""
    rows = tuple((case.name, goal) for case in bench.cases for goal in case.goals)
    return Sheet(bench.name, rows, bench.sentence, bench.others)


def _one_case(case: str, *rows: tuple[str, str]) -> tuple[tuple[str, Goal], ...]:
    return tuple((case, Goal(metric, text)) for metric, text in rows)


GROUPS = Sheet(
    "groups",
    _one_case(
        "many",
        ("groups", "groups"),
        ("boot_s", "start until every member is in every sync-state set, s"),
        ("masters", "masters per process"),
        ("idle_broker_cpu", "idle CPU per broker process, s/s"),
        ("idle_leader_cpu", "idle CPU of the controllers' leader, s/s"),
        ("idle_follower_cpu", "… of each of the two others, s/s"),
        ("rss_mb", "resident memory per broker process, MB"),
        ("threads", "threads per broker process"),
        ("descriptors", "open descriptors per broker process"),
        ("commits_per_sync", "group commits that one sync covered, with writes to all groups"),
        ("groups_lost", "SIGKILL of a broker process: groups it was master of"),
        ("elected_ms", "… until each of them had a new master, ms"),
        ("back_s", "… back in place after its start, s"),
        ("groups_handed_over", "SIGTERM of a broker process: groups it was master of"),
        ("handover_ms", "… until all of them were handed over, ms"),
        ("exit_s", "… until the process had ended, s"),
    ),
    "three broker processes, three controllers that sync every write, and the clients share them.",
)

QUEUES = Sheet(
    "queues",
    _one_case(
        "store",
        ("queues", "queues with a message each, in random order"),
        ("made_s", "… made, s"),
        ("made_cpu_s", "… CPU of that, s"),
        ("rss_mb", "… resident memory at its highest, MB"),
        ("disk_mb", "… on the disk besides the log, MB"),
        ("files", "… in files"),
        ("open_s", "opening it again, s"),
        ("one_us", "dispatch per message to one queue, CPU in µs"),
        ("some_us", "… to 10,000 queues at random"),
        ("all_us", "… to all queues at random"),
        ("step_ms", "the longest dispatch of 256 messages, ms"),
        ("trim_cpu_s", "CPU of going through all queues after a trim, in steps of one queue, s"),
        ("state_records", "the whole state: records"),
        ("state_mb", "… MB"),
        ("state_s", "… s, in one step"),
    ),
    "the store is alone in one process, without network or replication.",
)

SHEETS = (sheet_of(CONTROLLERS), sheet_of(BROKERS), GROUPS, QUEUES)
PROFILE = Sheet("profile", (), "the profiler took part of it.")
"""Without rows of its own: parts of a process down, cases across."""
