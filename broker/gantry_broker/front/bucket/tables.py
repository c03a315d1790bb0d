"""The tables of a group as of the head of its tier: what the controllers know, then records.

Topics change rarely, so all their changes in the tier are read. Offsets are written all the time,
so they are read from the newest record backwards, until a state says all that was so before.

What it refuses: to leave anything out. A pack that cannot be read may hold the newest commit, or
the end of a topic; so nothing is concluded before it was.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable
from itertools import groupby

from gantry_protocol.bodies import (
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
    decode_body,
)
from gantry_protocol.bodies.consumers import ConsumerTable
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.brokeradmin import GetAllTopicConfigRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.consumers import (
    GetConsumersRequestHeader,
    SubscriptionGroupRequestHeader,
)
from gantry_protocol.records import MessageRecord, decode_records
from gantry_protocol.remoting.asking import Asker, Outcome
from gantry_protocol.types import Offset

from gantry_broker.front.core.as_of import AsOf, OffsetsBack, Removals
from gantry_broker.store.tables.names import OFFSETS_TOPIC, STATE_TOPIC, TOPICS_TOPIC
from gantry_broker.store.tables.offsets import decode_rows
from gantry_broker.store.tables.state_records import decode_piece
from gantry_broker.store.tables.topics import decode_change
from gantry_broker.tier.core.locate import Queue, RunPlace
from gantry_broker.tier.core.reading import Local, Messages, Trouble, Wanted
from gantry_broker.tier.reader import TierReader

CALL_TIMEOUT_S = 2.0
PACKS_AT_ONCE = 4  # a pack may be full of commits
_WHOLE_RUN = 1 << 62  # bytes: as many as there are

Place = tuple[Queue, RunPlace]


class NotKnownError(GantryError):
    """The tables cannot be known now; says why."""


async def read_tables(reader: TierReader, peers: Asker, cluster: str, group: str) -> AsOf:
    """The tables as of the head of the tier that ``reader`` follows.

    Raises:
        NotKnownError: something cannot be read now, or the tier has moved meanwhile.
    """
    chain, index = reader.index.chain, reader.index
    if not chain.v or index.covered < chain.end:
        raise NotKnownError(f"the tier was read up to {index.covered} of {chain.end} so far.")
    if index.losses.packs:
        raise NotKnownError(reader.readable.complaint or "packs of the tier cannot be read.")
    topics_of = to_ext(GetAllTopicConfigRequestHeader(cluster, group))
    settings_of = to_ext(SubscriptionGroupRequestHeader(cluster, group))
    members_of = to_ext(GetConsumersRequestHeader(group, cluster))
    answers = [
        await asked(peers, request(code, ext), what)
        for code, ext, what in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, topics_of, "the topics"),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, settings_of, "consumers' settings"),
            (RequestCode.GANTRY_GET_CONSUMERS, members_of, "the consumers"),
        )
    ]
    table = decode_body(TopicConfigTable, answers[0].body)
    removals = Removals()
    changes = Queue(TOPICS_TOPIC, 0)
    places = [(changes, place) for place in index.runs.places(changes)]
    for at in range(0, len(places), PACKS_AT_ONCE):
        for record in await _all_records(reader, places[at : at + PACKS_AT_ONCE]):
            removals.take(decode_change(record.body), record.physical_offset)
    since = table.topics_since or {}
    names = {name: since.get(name, 0) for name in table.topic_config_table}
    former_below = removals.below(names, chain.end)
    begins = {
        (name, queue_id): await _begin(reader, Queue(name, queue_id), below)
        for name, below in former_below.items()
        for queue_id in range(_queues(table.topic_config_table[name]))
    }
    offsets = OffsetsBack(former_below)
    async for record in _newest_first(reader, (OFFSETS_TOPIC, STATE_TOPIC)):
        if record.topic == STATE_TOPIC:
            offsets.take_piece(decode_piece(record.body), record.physical_offset)
        else:
            offsets.take_rows(decode_rows(record.body), record.physical_offset)
        if offsets.is_full:
            raise NotKnownError("there are more offsets of consumers than a front keeps.")
        if offsets.is_whole:
            break
    if reader.index.chain.v != chain.v:
        raise NotKnownError("the tier has moved meanwhile.")
    topics = list(table.topic_config_table.values())
    settings = decode_body(SubscriptionGroupTable, answers[1].body)
    members = decode_body(ConsumerTable, answers[2].body).groups
    return AsOf(chain.v, topics, offsets.rows, settings, members, begins)


async def asked(peers: Asker, command: RemotingCommand, what: str) -> RemotingCommand:
    """The controllers' answer of success.

    Raises:
        NotKnownError: there is none; it says ``what`` is not known.
    """
    answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def told(outcome: Outcome) -> None:
        if not answered.done():
            answered.set_result(outcome)

    peers.ask(command, told, CALL_TIMEOUT_S)
    outcome = await answered
    if not isinstance(outcome, RemotingCommand):
        raise NotKnownError(f"the controllers did not say {what}: {outcome}")
    if outcome.code != ResponseCode.SUCCESS:
        raise NotKnownError(f"the controllers did not say {what}: {outcome.remark}.")
    return outcome


def _queues(topic: TopicConfig) -> int:
    return max(topic.read_queue_nums, topic.write_queue_nums)


async def _begin(reader: TierReader, queue: Queue, below: int) -> int:
    """The offset of a queue's first record at the log offset ``below`` or behind it, or its end.

    The numbers of a queue go on when its topic is made again, so former records and those of today
    may stand in one run.
    """
    index = reader.index
    places = index.runs.places(queue)
    at = bisect_right(places, below, key=lambda place: index.entry(place.pack).hi)
    if at == len(places):
        return places[-1].after if places else 0
    if below <= index.entry(places[at].pack).lo:
        return places[at].first
    for record in await _records(reader, queue, places[at]):
        if record.physical_offset >= below:
            return record.queue_offset
    return places[at].after


async def _newest_first(reader: TierReader, topics: Iterable[str]) -> AsyncIterator[MessageRecord]:
    """All records of some system topics, by falling log offset."""
    runs = reader.index.runs
    queues = [Queue(topic, 0) for topic in topics]
    places: list[Place] = [(queue, place) for queue in queues for place in runs.places(queue)]
    places.sort(key=_pack, reverse=True)  # keys of packs sort in the order of the chain
    packs = [list(together) for _, together in groupby(places, key=_pack)]
    for at in range(0, len(packs), PACKS_AT_ONCE):
        some = [_all_records(reader, pack) for pack in packs[at : at + PACKS_AT_ONCE]]
        for records in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(records, BaseException):
                raise records  # unless what is newer was enough
            for record in records:
                yield record


async def _all_records(reader: TierReader, places: list[Place]) -> list[MessageRecord]:
    """The records of some runs, fetched together, by falling log offset."""
    runs = await asyncio.gather(*(_records(reader, *place) for place in places))
    found = [record for run in runs for record in run]
    return sorted(found, key=lambda record: record.physical_offset, reverse=True)


def _pack(item: Place) -> str:
    return item[1].pack


async def _records(reader: TierReader, queue: Queue, place: RunPlace) -> list[MessageRecord]:
    """The records of a run.

    Raises:
        NotKnownError: it cannot be read.
    """
    found: list[MessageRecord] = []
    local = Local(Offset(reader.index.chain.end), place.after)
    while len(found) < place.count:
        wanted = Wanted(place.first + len(found), place.count, _WHOLE_RUN, None)
        answer = await reader.read(queue, wanted, local)
        if isinstance(answer, Trouble):
            raise NotKnownError(answer.reason)
        if not isinstance(answer, Messages) or not answer.count:
            raise NotKnownError(f"queue {queue.queue_id} of {queue.topic} has moved meanwhile.")
        found += decode_records(answer.body)
    return found
