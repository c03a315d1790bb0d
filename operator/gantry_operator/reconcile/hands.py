"""The differences between kinds of entities: comparison, making and removal of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gantry_protocol.admin_client.errors import AdminRefusedError
from gantry_protocol.admin_topics import OffsetResetView

from gantry_operator.api.kinds import CONSUMER_GROUP, TOPIC, Kind
from gantry_operator.cache import Name, place_of, reference
from gantry_operator.models.base import Metadata
from gantry_operator.models.consumer_group import (
    ConsumerGroup,
    ConsumerGroupStatus,
    OffsetReset,
    OffsetResetStatus,
)
from gantry_operator.models.entity import Entity, EntityStatus
from gantry_operator.models.topic import Topic
from gantry_operator.plan.consumer_groups import consumer_group_standing
from gantry_operator.plan.entities import Following
from gantry_operator.plan.offset_resets import ResetOffsets, has_ended, plan_reset
from gantry_operator.plan.topics import topic_standing

if TYPE_CHECKING:
    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.api.protocol import Body
    from gantry_operator.plan.actions import Action
    from gantry_operator.plan.entities import Compared
    from gantry_operator.reconcile.tables import Tables

HEARD_MAX = 4096
"""Requests to reset offsets that are remembered between two looks; of more some are made again."""


class Seen:
    """A resource, and what it stands for."""

    def __init__(self, kind: Kind, body: Body, entity: Entity | None) -> None:
        self.kind = kind
        self.body = body
        self.entity = entity
        self.meta = Metadata.model_validate(body["metadata"])
        self.place = place_of(kind, body)
        self.cluster: Name = (self.meta.namespace, reference(body))


class Hand(Protocol):
    """All that differs from kind to kind."""

    model: type[Entity]
    status: type[EntityStatus]
    check_s: float

    def told(self, seen: Seen) -> dict[str, Any]:
        """Fields of the status besides the common ones."""
        ...

    def following(self, seen: Seen, previous: EntityStatus | None) -> Following:
        """This kind's own part of the plan."""
        ...

    async def follow(self, seen: Seen, step: Action, admin: Admin) -> bool:
        """Carries a step of that out; whether to look again at once."""
        ...

    async def standing(self, seen: Seen) -> Compared:
        """The thing in the cluster, compared with the wish."""
        ...

    async def make(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers make it as wished."""
        ...

    async def remove(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers remove it."""
        ...


class OneHand:
    """A hand that does nothing besides."""

    check_s: float = 0.0

    def told(self, _: Seen) -> dict[str, Any]:
        """Nothing."""
        return {}

    def following(self, _: Seen, __: EntityStatus | None) -> Following:
        """Nothing."""
        return Following()

    async def follow(self, _: Seen, step: Action, __: Admin) -> bool:
        """Nothing that was planned here."""
        raise AssertionError(f"nothing plans a {type(step).__name__}")


class TopicHand(OneHand):
    """Topics; see ``Hand``."""

    model: type[Entity] = Topic
    status: type[EntityStatus] = EntityStatus

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def standing(self, seen: Seen) -> Compared:
        """The thing in the cluster, compared with the wish."""
        assert isinstance(seen.entity, Topic), "what cannot be read is compared with nothing"
        held = await self._tables.topics(*seen.cluster)
        return topic_standing(seen.place.named, seen.entity.spec.wish, held)

    async def make(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers make it as wished."""
        assert isinstance(seen.entity, Topic), "what cannot be read is not made"
        view = await admin.put_topic(seen.place.named, seen.entity.spec.wish)
        self._tables.wrote(TOPIC.kind, *seen.cluster, seen.place.named, view)

    async def remove(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers remove it."""
        await admin.delete_topic(seen.place.named)
        self._tables.wrote(TOPIC.kind, *seen.cluster, seen.place.named, None)


class ConsumerGroupHand(OneHand):
    """Settings of consumer groups; see ``Hand``."""

    model: type[Entity] = ConsumerGroup
    status: type[EntityStatus] = ConsumerGroupStatus

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        # By uid, what became of a request that has not come to its end, or was not written down.
        self._heard: dict[str, OffsetResetView] = {}

    def following(self, seen: Seen, previous: EntityStatus | None) -> Following:
        """A request to reset offsets."""
        known = previous.offset_reset if isinstance(previous, ConsumerGroupStatus) else None
        reset = seen.entity.spec.reset_offsets if seen.entity is not None else None
        heard = self._heard.get(seen.meta.uid)
        if heard is not None and (reset is None or _are_of_one(known, reset)):
            del self._heard[seen.meta.uid]
        return plan_reset(reset, known, heard)

    async def follow(self, seen: Seen, step: Action, admin: Admin) -> bool:
        """Has brokers carry a request out."""
        assert isinstance(step, ResetOffsets), f"nothing plans a {type(step).__name__}"
        try:
            heard = await admin.reset_offsets(seen.place.named, step.wish)
        except AdminRefusedError as error:  # perhaps its controllers are older
            heard = OffsetResetView(request=step.wish.request, waiting=[str(error)])
        self._heard.pop(seen.meta.uid, None)
        self._heard[seen.meta.uid] = heard
        if len(self._heard) > HEARD_MAX:
            del self._heard[next(iter(self._heard))]
        return has_ended(heard)

    async def standing(self, seen: Seen) -> Compared:
        """The thing in the cluster, compared with the wish."""
        assert isinstance(seen.entity, ConsumerGroup), "what cannot be read is not compared"
        held = await self._tables.consumer_groups(*seen.cluster)
        return consumer_group_standing(seen.place.named, seen.entity.spec.wish, held)

    async def make(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers make it as wished."""
        assert isinstance(seen.entity, ConsumerGroup), "what cannot be read is not made"
        view = await admin.put_consumer_group(seen.place.named, seen.entity.spec.wish)
        self._tables.wrote(CONSUMER_GROUP.kind, *seen.cluster, seen.place.named, view)

    async def remove(self, seen: Seen, admin: Admin) -> None:
        """Has the controllers remove it."""
        await admin.delete_consumer_group(seen.place.named)
        self._tables.wrote(CONSUMER_GROUP.kind, *seen.cluster, seen.place.named, None)


def _are_of_one(known: OffsetResetStatus | None, reset: OffsetReset) -> bool:
    return known is not None and known.request == reset.request
