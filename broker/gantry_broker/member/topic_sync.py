"""Topics: the controller decides, then a record in the log tells every replica.

Rule protected (H10): whatever changes the state of a broker is a record in the log. The
controller's table is read as a whole, what differs from the confirmed table becomes one change
record, and a topic exists here once that record is confirmed. The record carries the controller's
version, so a change that arrives twice, or late, changes nothing.

A quorum that has adopted the group does not know what is in its log, and gives no table: then the
master reports the topics that its log has (31009), and reads again. Before that it appends a change
that changes nothing, and waits until that is confirmed. So no topic of an earlier master is still
on its way to the confirmed table when that is reported. Nothing is ever ended because of a table
that the log was not reported to.

One reading is under way at a time; wishes that come meanwhile share the next. Only a serving master
synchronises; when the mastership ends all waiting creations are refused.
"""

import asyncio
from collections.abc import Callable
from time import thread_time
from typing import Protocol

from gantry_protocol.bodies import TopicConfig, TopicConfigTable, decode_body, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import BodyError, GantryError, HeaderError, RecordError
from gantry_protocol.headers.brokeradmin import (
    CreateTopicRequestHeader,
    CreateTopicResponseHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    ReportTopicsRequestHeader,
)
from gantry_protocol.headers.codec import from_ext, to_ext
from gantry_protocol.process import log
from gantry_protocol.remoting.asking import Asker, Outcome
from msgspec.structs import replace

from gantry_broker.clients.claim import Claim
from gantry_broker.clients.view import Created
from gantry_broker.store.contract import QueueOffsets, QueueQuestion, Refusal, SendOutcome, Store
from gantry_broker.store.tables.topics import TopicChange, change_record

CALL_TIMEOUT_S = 2.0
PAUSES = 10.0  # times what a reading took here; the controllers need about as much for it
PAUSE_MIN_S = 0.02  # a table of a few hundred topics
PAUSE_MAX_S = 0.5  # who creates a topic waits for it
MAX_WAITING = 4096
RETRY_S = 1.0
TOPICS_PER_REPORT = 1_000  # some 300 KB

_NOT_REPORTED = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
_NO_MASTER = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "no longer the master")
_LOST = Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker lost its mastership")

_log = log.get("topics")


class TopicHost(Protocol):
    """The part of a group that the synchronisation needs."""

    @property
    def store(self) -> Store:
        """The store of the confirmed table, through which changes go."""

    @property
    def cluster(self) -> str:
        """The group's cluster."""

    @property
    def broker_name(self) -> str:
        """The group's name."""

    @property
    def store_host(self) -> tuple[str, int]:
        """For records of our own."""


class TopicSync:
    """One group's topics, while it serves.

    Args:
        host: the group.
        peers: the controllers.
        serving: whether this is the serving master now.
        claim: by what; asked only while it serves.
    """

    def __init__(
        self,
        host: TopicHost,
        peers: Asker,
        serving: Callable[[], bool],
        claim: Callable[[], Claim],
    ) -> None:
        """Nothing is under way."""
        self._host = host
        self._peers = peers
        self._serving = serving
        self._claim = claim
        self._wanted = 0  # the newest version that was heard of
        self._reading = False
        self._again = False
        self._used_s = 0.0  # CPU of this reading
        self._waiting: list[tuple[int, Created]] = []  # version wanted, whom to tell
        self._ended = 0  # masterships

    # ---- wishes

    def create(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create ``topic``, or change it unless ``if_absent``.

        ``done(None)`` comes once it can be looked up in the store.
        """
        header = CreateTopicRequestHeader(
            topic=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
            attributes=_modification(topic.attributes),
            broker_name=self._host.broker_name,
            cluster_name=self._host.cluster,
            if_absent=if_absent,
        )
        self._ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, to_ext(header)), done)

    def delete(self, topic: str, done: Created) -> None:
        """Delete ``topic`` here; ``done(None)`` comes once it can be found no more."""
        header = DeleteTopicRequestHeader(
            topic=topic, cluster_name=self._host.cluster, broker_name=self._host.broker_name
        )
        self._ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, to_ext(header)), done)

    def _ask(self, command: RemotingCommand, done: Created) -> None:
        if len(self._waiting) >= MAX_WAITING:
            done(Refusal(ResponseCode.SYSTEM_BUSY, "too many topics are being changed"))
            return
        ended = self._ended

        def answered(outcome: Outcome) -> None:
            # Whoever asked would go on under the next mastership of this process. Its client is
            # passed on with what it waits for, so another master may have served that by now.
            if ended == self._ended:
                self._committed(outcome, done)
            else:
                done(_LOST)

        self._peers.ask(command, answered, CALL_TIMEOUT_S)

    def _committed(self, outcome: Outcome, done: Created) -> None:
        if not isinstance(outcome, RemotingCommand):
            done(Refusal(ResponseCode.SYSTEM_BUSY, f"the controllers did not answer: {outcome}"))
            return
        if outcome.code != ResponseCode.SUCCESS:
            code = _known_code(outcome.code)
            done(Refusal(code, outcome.remark or "the controllers refused the topic"))
            return
        try:
            version = from_ext(CreateTopicResponseHeader, outcome.ext).topics_version or 0
        except HeaderError as error:
            done(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        if version <= self._host.store.topics.version:
            done(None)
            return
        self._waiting.append((version, done))
        self._read()

    def catch_up(self, version: int) -> None:
        """The controllers' table is at ``version``; make ours follow."""
        self._wanted = max(self._wanted, version)
        if version > self._host.store.topics.version and self._serving():
            self._read()

    def end(self) -> None:
        """The mastership is over: nobody hears of its wishes but that."""
        self._ended += 1
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(_LOST)

    # ---- the table

    def _read(self) -> None:
        if self._reading:
            self._again = True
            return
        self._reading, self._again = True, False
        header = GetAllTopicConfigRequestHeader(
            cluster_name=self._host.cluster, broker_name=self._host.broker_name
        )
        command = request(RequestCode.GET_ALL_TOPIC_CONFIG, to_ext(header))
        self._peers.ask(command, self._table_came, CALL_TIMEOUT_S)

    def _table_came(self, outcome: Outcome) -> None:
        if not self._serving():
            self._finish(_NO_MASTER)
            return
        if isinstance(outcome, RemotingCommand) and outcome.code == _NOT_REPORTED:
            self._report()
            return
        try:
            begun_s = thread_time()
            self._append_difference(_table(outcome))
            self._used_s = thread_time() - begun_s
        except GantryError as error:
            self._finish(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))

    # ---- the log's topics, for a quorum that has adopted the group

    def _report(self) -> None:
        claim = self._claim()
        record = change_record(TopicChange(self._host.store.topics.version))
        record.store_host = record.born_host = self._host.store_host

        def confirmed(outcome: SendOutcome) -> None:
            if outcome.code == ResponseCode.SUCCESS:
                self._report_from(claim, self._host.store.topics.all(), 0)
            else:
                self._appended(outcome)

        try:
            self._host.store.append([record], confirmed)
        except RecordError as error:
            self._finish(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))

    def _report_from(self, claim: Claim, topics: list[TopicConfig], start: int) -> None:
        """Report ``topics`` from ``start`` on; one part after another, the last one ends it."""
        if not self._serving() or self._claim() != claim:
            self._finish(_NO_MASTER)
            return
        end = start + TOPICS_PER_REPORT
        header = ReportTopicsRequestHeader(
            self._host.cluster,
            self._host.broker_name,
            claim.broker_id,
            claim.epoch,
            claim.incarnation,
            more=end < len(topics),
        )
        body = TopicConfigTable({topic.topic_name: topic for topic in topics[start:end]})
        command = request(RequestCode.GANTRY_REPORT_TOPICS, to_ext(header), encode_body(body))

        def answered(outcome: Outcome) -> None:
            if not isinstance(outcome, RemotingCommand) or outcome.code != ResponseCode.SUCCESS:
                why = outcome.remark if isinstance(outcome, RemotingCommand) else str(outcome)
                self._finish(Refusal(ResponseCode.SYSTEM_BUSY, f"topics were not reported: {why}"))
            elif header.more:
                self._report_from(claim, topics, end)
            else:
                _log.info("the controllers know the topics of the log", topics=len(topics))
                self._again = True
                self._finish(None)

        self._peers.ask(command, answered, CALL_TIMEOUT_S)

    # ---- what is missing here

    def _append_difference(self, table: TopicConfigTable) -> None:
        change = self._host.store.topics.difference(
            table.topics_version or 0,
            list(table.topic_config_table.values()),
            table.topics_since,
        )
        if change is None:
            self._finish(None)
            return
        topics = self._host.store.topics
        questions = [
            QueueQuestion(topic.topic_name, queue_id)
            for topic in change.put
            if topics.lookup(topic.topic_name) is None
            for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums))
        ]
        self._host.store.offsets(
            questions, lambda answers: self._append(change, questions, answers)
        )

    def _append(
        self,
        change: TopicChange,
        questions: list[QueueQuestion],
        answers: list[QueueOffsets] | Refusal,
    ) -> None:
        """Append ``change``, ending once more what a topic of an earlier life got after its end.

        A send may be accepted between the end of its topic and the confirmation of that.
        """
        if isinstance(answers, Refusal) or not self._serving():
            self._finish(answers if isinstance(answers, Refusal) else _NO_MASTER)
            return
        remains = {
            question.topic
            for question, queue in zip(questions, answers, strict=True)
            if queue.next_offset > queue.min_offset
        }
        change = replace(change, removed=[*change.removed, *sorted(remains)])
        record = change_record(change)
        record.store_host = record.born_host = self._host.store_host
        for name in change.removed:
            self._host.store.committed.end_topic(name)
        try:
            self._host.store.append([record], self._appended)
        except RecordError as error:
            self._finish(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))

    def _appended(self, outcome: SendOutcome) -> None:
        if outcome.code == ResponseCode.SUCCESS:
            self._finish(None)
        else:
            _log.warning("topics were not confirmed", reason=outcome.remark)
            self._finish(Refusal(ResponseCode.SYSTEM_BUSY, outcome.remark or "not confirmed"))

    def _finish(self, refusal: Refusal | None) -> None:
        """Tell whoever has what it waited for, or everybody that it failed; then go on."""
        self._reading = False
        reached = self._host.store.topics.version
        waiting, self._waiting = self._waiting, []
        for version, done in waiting:
            if version <= reached:
                done(None)
            elif refusal is not None:
                done(refusal)
            else:
                self._waiting.append((version, done))
        if (self._again or self._waiting) and refusal is None and self._serving():
            self._read_later()
        elif refusal is not None and self._wanted > reached and self._serving():
            self._reading = True
            asyncio.get_running_loop().call_later(RETRY_S, self._read_on)

    def _read_later(self) -> None:
        """Once more: at once, or after a pause by what one costs where there are many topics."""
        pause_s = min(PAUSES * self._used_s, PAUSE_MAX_S)
        if pause_s < PAUSE_MIN_S:
            self._read()
            return
        self._reading = True  # wishes that come meanwhile share it
        asyncio.get_running_loop().call_later(pause_s, self._read_on)

    def _read_on(self) -> None:
        self._reading = False
        if self._serving():
            self._read()
        else:
            self.end()


def _table(outcome: Outcome) -> TopicConfigTable:
    """The controllers' table.

    Raises:
        GantryError: they did not give it.
    """
    if not isinstance(outcome, RemotingCommand):
        raise outcome
    if outcome.code != ResponseCode.SUCCESS:
        raise BodyError(f"The controllers refused the topics: {outcome.remark}.")
    return decode_body(TopicConfigTable, outcome.body)


def _modification(attributes: dict[str, str]) -> str | None:
    """Attributes with ``+`` or ``-`` before their names, as 17 takes them."""
    parts = [f"{name}={value}" if value else name for name, value in attributes.items()]
    return ",".join(parts) or None


def _known_code(code: int) -> ResponseCode:
    try:
        return ResponseCode(code)
    except ValueError:
        return ResponseCode.SYSTEM_ERROR
