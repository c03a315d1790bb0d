"""The controller's metrics: read from plain counters when somebody asks."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_controller.admin.watch import WatchHub
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.remoting.dispatcher import Dispatcher
from gantry_controller.remoting.forwarder import Forwarder
from gantry_controller.remoting.notifier import Notifier

PREFIX = "gantry_controller_"


class RaftFigures(NamedTuple):
    """Figures of the Raft node."""

    leading: bool
    term: int
    commit_index: int
    applied_index: int
    digest_index: int
    differing: int
    reads: dict[str, int]
    reads_redirected: int
    lease_valid: bool
    voters: int
    learners: int
    transfers: int


class Metrics(Collector):
    """Everything one controller node counts."""

    def __init__(
        self,
        raft: Callable[[], RaftFigures],
        machine: MetadataStateMachine,
        watchman: Watchman,
        dispatcher: Dispatcher,
        forwarder: Forwarder,
        notifier: Notifier,
        hub: WatchHub,
    ) -> None:
        self._raft = raft
        self._machine = machine
        self._watchman = watchman
        self._dispatcher = dispatcher
        self._forwarder = forwarder
        self._notifier = notifier
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        """The families, in a fixed order."""
        raft = self._raft()
        yield _gauge("leading", "1 on the node that leads the quorum.", int(raft.leading))
        yield _gauge("raft_term", "Raft term this node is in.", raft.term)
        yield _gauge("raft_commit_index", "Last committed entry known here.", raft.commit_index)
        yield _gauge("raft_applied_index", "Last entry applied here.", raft.applied_index)
        yield _gauge("raft_digest_index", "Entry of the newest state digest.", raft.digest_index)
        yield _gauge(
            "raft_state_differs",
            "Other nodes whose state was found to differ from that of this leader.",
            raft.differing,
        )
        yield _counter(
            "reads_total",
            "Linearizable reads answered here, by what made them so.",
            ["mode"],
            {(mode,): count for mode, count in raft.reads.items()},
        )
        yield _count(
            "reads_redirected_total",
            "Reads that this node, following, sent to the leader.",
            raft.reads_redirected,
        )
        yield _gauge("raft_voters", "Members whose votes count, as this node knows.", raft.voters)
        yield _gauge("raft_learners", "Members that only receive the log.", raft.learners)
        yield _count(
            "raft_transfers_total", "Times this leader began to hand over.", raft.transfers
        )
        yield _gauge("lease_valid", "1 on a leader that may read by lease.", int(raft.lease_valid))
        yield from self._groups()
        yield _counter(
            "elections_total",
            "Elections this node proposed by itself, by reason.",
            ["reason"],
            {(reason,): count for reason, count in self._watchman.elections.items()},
        )
        yield _count(
            "elections_held_back_total",
            "Elections that brokers asked for and that had to wait for others of the set.",
            self._watchman.elections_held_back,
        )
        spread = self._watchman.spread
        yield _counter(
            "master_moves_total",
            "Masterships that this leader moved to a process that led fewer, by outcome.",
            ["outcome"],
            {("done",): spread.moved, ("failed",): spread.failed},
        )
        yield _gauge(
            "masters_to_move",
            "Masterships that have to move until processes with the same groups lead equally many.",
            spread.to_move,
        )
        yield _count(
            "floors_raised_total",
            "Times this leader had the quorum take note of what a group has confirmed.",
            self._watchman.floors_raised,
        )
        yield _counter(
            "requests_total",
            "Remoting requests, by request code.",
            ["code"],
            {(str(code),): count for code, count in self._dispatcher.requests.items()},
        )
        yield _count(
            "requests_without_key_total",
            "Requests that change the quorum's state, refused since no quorum key was shown.",
            self._dispatcher.guard.refused,
        )
        yield _count(
            "keys_refused_total",
            "Quorum keys shown on ports 9878 and 9876 that were not this quorum's.",
            self._dispatcher.guard.key_requests.refused,
        )
        yield _count(
            "requests_expired_total", "Requests without a quorum.", self._dispatcher.expired
        )
        yield _gauge(
            "long_answers",
            "Lists, and routes of many groups, that are being made in turns.",
            len(self._dispatcher.long_answers),
        )
        yield _count(
            "long_answers_refused_total",
            "Lists, and routes of many groups, that were refused as too many.",
            self._dispatcher.long_answers.refused,
        )
        yield _count(
            "requests_forwarded_total",
            "Requests passed on to the leader.",
            self._forwarder.forwarded,
        )
        yield _count(
            "requests_forward_failed_total",
            "Requests that did not reach the leader, or whose answer did not come back.",
            self._forwarder.failed,
        )
        yield _count(
            "role_changes_sent_total", "Role changes told to brokers.", self._notifier.sent
        )
        yield _count(
            "role_changes_failed_total",
            "Role changes that could not be told; brokers poll for them.",
            self._notifier.failed,
        )
        yield _count(
            "role_changes_retried_total",
            "Attempts to connect to a broker after a first one that failed.",
            self._notifier.retried,
        )
        yield _gauge(
            "role_changes_waiting", "Brokers with a role change on its way.", self._notifier.waiting
        )
        yield _count(
            "stalls_total",
            "Times this process stood still so long that brokers got a new time-out.",
            self._watchman.stalls,
        )
        yield _count(
            "heartbeats_dropped_total",
            "Heartbeats of brokers beyond the table's bound.",
            self._watchman.table.refused_rows,
        )
        yield _gauge("watchers", "Open watches.", len(self._hub.watchers))
        yield _count(
            "watchers_dropped_total", "Watches ended because nobody read.", self._hub.dropped
        )

    def _groups(self) -> Iterator[Metric]:
        state = self._machine.state
        yield _gauge("groups", "Broker groups on record.", state.living_count)
        yield _gauge(
            "groups_without_master",
            "Broker groups on record without a master.",
            state.headless_count,
        )
        yield _gauge(
            "groups_unserved",
            "Broker groups without a master that this node hears, but for retired ones.",
            self._watchman.groups_unserved,
        )
        yield _gauge(
            "groups_retired",
            "Broker groups on record whose owner is gone; nobody is sent there.",
            state.retired_count,
        )
        yield _gauge(
            "groups_held_back",
            "Broker groups that elect nobody, since who lives lacks what was confirmed, or may.",
            self._watchman.groups_held_back,
        )
        yield _gauge(
            "groups_wiped",
            "Broker groups whose routes keep producers away (205) until they are let back (327).",
            len(state.wiped),
        )
        yield _gauge(
            "queue_map_segments_max",
            "The most segments that a queue of a mapped topic has; at 64 it moves no more.",
            state.segments_most(),
        )
        yield _gauge(
            "kv_chars",
            "Characters of the name service's key-values.",
            sum(item.chars for item in state.kv.values()),
        )
        heard = self._watchman.brokers_heard()
        yield _gauge("brokers_heard", "Brokers heard within their time-outs by this node.", heard)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _count(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _counter(
    name: str, text: str, labels: list[str], values: dict[tuple[str, ...], int]
) -> CounterMetricFamily:
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
