"""Consumer groups: who there is, who is in them, how they may consume.

A group exists as soon as it was given a setting, has a member, or has committed an offset; nobody
has to create it. Settings are committed by the controllers, members and offsets are asked of the
masters of the broker groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import (
    ConsumerConnections,
    ConsumerOffsets,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    decode_body,
    encode_body,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.brokeradmin import (
    DeleteSubscriptionGroupRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from gantry_protocol.headers.client import ConsumerGroupRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.consumers import SubscriptionGroupRequestHeader

from gantry_cli.client import topics
from gantry_cli.client.brokers import ask, broker_groups, everywhere, together
from gantry_cli.client.progress import QueueProgress, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.brokers import GroupAddress
    from gantry_cli.client.session import Session

RETRY_PREFIX, DEAD_LETTER_PREFIX = "%RETRY%", "%DLQ%"
_NO_SETTING = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,)


class GroupClient(msgspec.Struct, frozen=True, order=True):
    """One client of a consumer group, as it is connected to some broker groups."""

    client_id: str
    address: str
    language: str


class Subscription(msgspec.Struct, frozen=True, order=True):
    """The members' subscription to a topic."""

    topic: str
    expression: str


class Consumers(msgspec.Struct, frozen=True):
    """Everything about one consumer group.

    Attributes:
        message_model: CLUSTERING or BROADCASTING; empty while nobody is connected.
        settings: by broker group; only where somebody has set any.
    """

    group: str
    message_model: str
    members: list[GroupClient]
    subscriptions: list[Subscription]
    settings: dict[str, SubscriptionGroupConfig]
    queues: list[QueueProgress]

    @property
    def is_known(self) -> bool:
        """Whether anybody has ever heard of it."""
        return bool(self.members or self.settings or self.queues)

    @property
    def lag(self) -> int:
        """Messages that wait for it."""
        return sum(row.lag for row in self.queues)


async def list_groups(client: Session, groups: Sequence[GroupAddress]) -> list[str]:
    """The names of all consumer groups.

    Raises:
        GantryError: somebody did not answer.
    """
    names = {
        name.removeprefix(RETRY_PREFIX)
        for name in await topics.list_topics(client.routes)
        if name.startswith(RETRY_PREFIX)
    }

    async def of_group(group: GroupAddress) -> set[str]:
        what = "The consumer groups are not known"
        listed = await ask(client, group, request(RequestCode.GET_ALL_CONSUMER_OFFSET), what)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        settings = await ask(client, group, request(code), what)
        table = decode_body(SubscriptionGroupTable, settings.body).subscription_group_table
        offsets = decode_body(ConsumerOffsets, listed.body).offset_table
        return {*table, *(key.rpartition("@")[2] for key in offsets)}

    return sorted(names.union(*await together(groups, of_group)))


async def describe_group(client: Session, groups: Sequence[GroupAddress], name: str) -> Consumers:
    """Everything about the consumer group ``name``, which need not exist.

    Raises:
        BrokerError: a broker group did not answer.
    """
    connections = [
        item for item in await together(groups, lambda g: _connections(client, g, name)) if item
    ]
    settings = await together(groups, lambda group: setting(client, group, name))
    return Consumers(
        group=name,
        message_model=connections[0].message_model if connections else "",
        members=sorted(
            {
                GroupClient(item.client_id, item.client_addr, item.language)
                for found in connections
                for item in found.connection_set
            }
        ),
        subscriptions=sorted(
            {
                Subscription(topic, item.sub_string)
                for found in connections
                for topic, item in found.subscription_table.items()
            }
        ),
        settings={
            group.name: found
            for group, found in zip(groups, settings, strict=True)
            if found is not None
        },
        queues=await progress(client, groups, name),
    )


async def setting(
    client: Session, group: GroupAddress, name: str
) -> SubscriptionGroupConfig | None:
    """The settings of ``name`` on ``group``; None while nobody has set anything."""
    command = request(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        to_ext(QueryTopicsByConsumerRequestHeader(name)),
    )
    what = f"The setting of {name!r} is not known"
    answer = await ask(client, group, command, what, but=_NO_SETTING)
    if answer.code != ResponseCode.SUCCESS:
        return None
    return decode_body(SubscriptionGroupConfig, answer.body)


async def put_setting(
    client: Session, group: GroupAddress, config: SubscriptionGroupConfig
) -> None:
    """Create or change a consumer group on ``group``.

    Raises:
        BrokerError: refused, or nobody answered.
    """
    header = SubscriptionGroupRequestHeader(group.cluster, group.name)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    command = request(code, to_ext(header), encode_body(config))
    await ask(client, group, command, f"Group {config.group_name!r} was not changed")


async def delete_group(client: Session, name: str, *, dead_letters: bool) -> None:
    """Delete settings, offsets and the retry topic of ``name``; its dead letters only on request.

    Raises:
        GantryError: somebody did not answer; what was not deleted can be deleted again.
    """
    header = DeleteSubscriptionGroupRequestHeader(name, clean_offset=True)
    command = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, to_ext(header))
    what = f"Group {name!r} was not deleted"
    await everywhere(
        lambda: broker_groups(client.routes),
        lambda group: ask(client, group, command, what),
    )
    prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX) if dead_letters else (RETRY_PREFIX,)
    known = set(await topics.list_topics(client.routes))
    for prefix in prefixes:
        if prefix + name in known:
            await topics.delete_topic(client, prefix + name)


async def _connections(
    client: Session, group: GroupAddress, name: str
) -> ConsumerConnections | None:
    command = request(
        RequestCode.GET_CONSUMER_CONNECTION_LIST, to_ext(ConsumerGroupRequestHeader(name))
    )
    what = f"The members of {name!r} are not known"
    answer = await ask(client, group, command, what, but=(ResponseCode.CONSUMER_NOT_ONLINE,))
    if answer.code != ResponseCode.SUCCESS:
        return None
    return decode_body(ConsumerConnections, answer.body)


def must_be_known(found: Consumers) -> Consumers:
    """``found``, if anybody has ever heard of it.

    Raises:
        GantryError: nobody has.
    """
    if not found.is_known:
        raise GantryError(
            f"There is no consumer group {found.group!r}: it has no members, no offsets and no "
            "setting. See gantry groups list."
        )
    return found
