"""Metrics of what administrators do at a broker, in Prometheus' words."""

from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_broker.clients.drain import GroupDrain
from gantry_broker.clients.offset_age import OffsetAge
from gantry_broker.clients.passing import Passing
from gantry_broker.clients.pulled import PulledOffsets
from gantry_broker.clients.replies import Replies
from gantry_broker.clients.resent import ResentSends
from gantry_broker.clients.resets import OffsetResets
from gantry_broker.clients.traffic import Traffic
from gantry_broker.store.tables.offsets import ConsumerOffsets


class Administered(Protocol):
    """The parts of one mastership whose figures are served."""

    resets: OffsetResets
    passing: Passing
    replies: Replies
    resent: ResentSends
    age: OffsetAge
    traffic: Traffic
    drain: GroupDrain

    @property
    def committed(self) -> ConsumerOffsets:
        """Committed offsets of groups."""

    @property
    def pulled(self) -> PulledOffsets:
        """Pulled offsets of groups."""

    @property
    def commits_failed(self) -> int:
        """Writes of committed offsets that were not confirmed."""


class AdminCollector(Collector):
    """Reads everything when it is scraped; counters begin anew with each mastership.

    Args:
        served: of this mastership; None while this is not the master.
    """

    def __init__(self, served: Callable[[], Administered | None]) -> None:
        """Nothing is counted here."""
        self._served = served

    def collect(self) -> Iterable[Metric]:
        """The metrics as of now."""
        served = self._served()
        yield CounterMetricFamily(
            "gantry_broker_offset_resets",
            "Queues in which a group's offset was reset, in this mastership.",
            value=0 if served is None else served.resets.queues,
        )
        yield CounterMetricFamily(
            "gantry_broker_offset_writes_failed",
            "Writes of committed offsets that were not confirmed and are tried again, in this"
            " mastership.",
            value=0 if served is None else served.commits_failed,
        )
        yield GaugeMetricFamily(
            "gantry_broker_committed_offsets",
            "Offsets of consumer groups in queues, on the serving master.",
            value=0 if served is None else len(served.committed),
        )
        yield CounterMetricFamily(
            "gantry_broker_committed_offsets_expired",
            "Offsets that nobody used and that were forgotten, in this mastership.",
            value=0 if served is None else served.age.expired,
        )
        refused = CounterMetricFamily(
            "gantry_broker_commits_refused",
            "Commits that are not kept, since the process began to serve the group.",
            labels=["reason"],
        )
        refused.add_metric(["too_many"], 0 if served is None else served.committed.refused)
        refused.add_metric(["no_record"], 0 if served is None else served.committed.unwritable)
        yield refused
        put, got = (0, 0) if served is None else served.traffic.totals()
        messages = CounterMetricFamily(
            "gantry_broker_messages",
            "Messages that clients sent (in) and that consumers were given (out) in this"
            " mastership, through fronts, too.",
            labels=["direction"],
        )
        messages.add_metric(["in"], put)
        messages.add_metric(["out"], got)
        yield messages
        yield GaugeMetricFamily(
            "gantry_broker_pulled_offsets",
            "Positions of groups in queues that are kept to tell what is in flight.",
            value=0 if served is None else len(served.pulled),
        )
        yield GaugeMetricFamily(
            "gantry_broker_consumer_questions",
            "Questions of administrators that a consumer has yet to answer.",
            value=0 if served is None else len(served.passing),
        )
        failed = CounterMetricFamily(
            "gantry_broker_consumer_questions_failed",
            "Questions to consumers that were not answered, in this mastership.",
            labels=["reason"],
        )
        failed.add_metric(["too_many"], 0 if served is None else served.passing.refused)
        failed.add_metric(["no_answer"], 0 if served is None else served.passing.expired)
        yield failed
        yield from _replies(None if served is None else served.replies)
        resent = CounterMetricFamily(
            "gantry_broker_resent_sends",
            "Sends that an earlier master may have stored, by whether it had, in this mastership.",
            labels=["outcome"],
        )
        resent.add_metric(["found"], 0 if served is None else served.resent.found)
        resent.add_metric(["appended"], 0 if served is None else served.resent.appended)
        yield resent
        yield GaugeMetricFamily(
            "gantry_broker_passed_again_sends",
            "Sends that another group's masters have passed on twice, and that are remembered.",
            value=0 if served is None else len(served.resent.again),
        )
        yield from _drain(None if served is None else served.drain)


def _replies(replies: Replies | None) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "gantry_broker_replies_waiting",
        "Replies that the client which waits for them has yet to take.",
        value=0 if replies is None else len(replies),
    )
    ended = CounterMetricFamily(
        "gantry_broker_replies",
        "Replies to requests of clients, by what became of them, in this mastership.",
        labels=["outcome"],
    )
    ended.add_metric(["taken"], 0 if replies is None else replies.pushed)
    ended.add_metric(["not_here"], 0 if replies is None else replies.homeless)
    ended.add_metric(["too_many"], 0 if replies is None else replies.refused)
    ended.add_metric(["no_answer"], 0 if replies is None else replies.expired)
    yield ended


def _drain(drain: GroupDrain | None) -> Iterable[Metric]:
    report = None if drain is None else drain.report
    left = GaugeMetricFamily(
        "gantry_broker_drain_left",
        "What is left of a group that is being drained, on the serving master; unread messages"
        " count once for each consumer group.",
        labels=["kind"],
    )
    if drain is not None and report is not None:
        left.add_metric(["offsets"], len(drain.offsets))
        left.add_metric(["unread"], report.unread)
        left.add_metric(["parked"], report.parked)
        left.add_metric(["transactions"], report.transactions)
    yield left
    yield CounterMetricFamily(
        "gantry_broker_drain_refused",
        "Sends that were refused since the group is being drained, in this mastership.",
        value=0 if drain is None else drain.refused,
    )
