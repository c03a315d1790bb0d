"""The admin API of a quorum: a method for each thing that can be asked of it.

Reading distinguishes three outcomes: the group, no such group, and no answer. The last is a value,
since a plan has to decide what to do without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlencode

from pydantic import ValidationError

from gantry_protocol.admin import (
    AcceptLossRequest,
    AccessView,
    AccessWish,
    AdoptRequest,
    DrainRequest,
    ElectRequest,
    EvidenceRequest,
    FenceRequest,
    ForgetRequest,
    FrontsDeclaration,
    FrontsView,
    GroupDeclaration,
    GroupView,
    MemberRequest,
    MovesView,
    QueueMapsView,
    QueuesWish,
    QuorumView,
    RebalanceRequest,
    RetireRequest,
    RulesWish,
    RuleWish,
    SecretCheck,
    SecretCheckView,
    TransferRequest,
    UserWish,
)
from gantry_protocol.admin_client.errors import AdminRefusedError, QuorumUnreachableError
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.admin_topics import (
    PAGE_MAX,
    ConsumerGroupList,
    ConsumerGroupView,
    ConsumerGroupWish,
    OffsetResetView,
    OffsetResetWish,
    TopicList,
    TopicView,
    TopicWish,
)

if TYPE_CHECKING:
    from gantry_protocol.admin_client.quorum import Quorum


MemberChange = Literal["add", "promote", "remove", "transfer"]


class Admin:
    """The admin API of one quorum; `cluster` is the ControllerGroup's name."""

    def __init__(self, quorum: Quorum, cluster: str) -> None:
        self.quorum = quorum
        self._cluster = cluster

    def _path(self, group: str, verb: str = "") -> str:
        path = f"/v1/groups/{quote(self._cluster, safe='')}/{quote(group, safe='')}"
        return f"{path}/{verb}" if verb else path

    def _fronts(self, name: str = "") -> str:
        path = f"/v1/clusters/{quote(self._cluster, safe='')}/fronts"
        return f"{path}/{quote(name, safe='')}" if name else path

    def _queues(self, topic: str = "") -> str:
        path = f"/v1/clusters/{quote(self._cluster, safe='')}/queues"
        return f"{path}/{quote(topic, safe='')}" if topic else path

    async def group(self, name: str) -> GroupView | NotDeclared | Unreachable:
        """The controllers' knowledge of a group."""
        try:
            data = await self.quorum.ask_leader("GET", self._path(name))
            return GroupView.model_validate_json(data)
        except QuorumUnreachableError as error:
            return Unreachable(str(error))
        except AdminRefusedError as error:
            return NotDeclared() if error.status == 404 else Unreachable(str(error))
        except ValidationError:
            return Unreachable(f"{self.quorum.name} gave an answer that is no group.")

    async def view(self) -> QuorumView | Unreachable:
        """The leader's view of the quorum, else that of whoever answers.

        Everybody is asked, since a node that was cut off may still believe that it leads: among
        those who say that they lead themselves, the highest term is right. What each says of its
        settings is put beside what that one says of it.
        """
        views = []
        try:
            answers = await self.quorum.ask_anyone("/v1/quorum")
        except QuorumUnreachableError as error:
            return Unreachable(str(error))
        for _, data in answers:
            try:
                views.append(QuorumView.model_validate_json(data))
            except ValidationError:
                continue
        if not views:
            return Unreachable(f"The controllers of {self.quorum.name} cannot be understood.")
        newest = max(view.term for view in views)
        best = max(views, key=lambda v: (v.term == newest and v.leader_id == v.node_id, v.term))
        words = {
            view.node_id: {"settings": view.settings, "settings_refused": view.settings_refused}
            for view in views
        }
        peers = [peer.model_copy(update=words.get(peer.id, {})) for peer in best.peers]
        return best.model_copy(update={"peers": peers})

    async def change_members(self, change: MemberChange, number: int, address: str = "") -> None:
        """Adds a learner, lets it vote, takes a member out, or hands leadership over to one."""
        members = "/v1/quorum/members"
        if change == "add":
            body = MemberRequest(node=number, address=address).to_json()
            await self.quorum.ask_leader("POST", members, body)
        elif change == "promote":
            await self.quorum.ask_leader("POST", f"{members}/{number}/promote")
        elif change == "remove":
            await self.quorum.ask_leader("DELETE", f"{members}/{number}")
        else:
            body = TransferRequest(target=number).to_json()
            await self.quorum.ask_leader("POST", "/v1/quorum/transfer", body)

    async def declare(self, name: str, declaration: GroupDeclaration) -> None:
        """Says what a group is to be like."""
        await self.quorum.ask_leader("PUT", self._path(name), declaration.to_json())

    async def fronts(self) -> FrontsView | Unreachable:
        """The fronts to which clients of the cluster are led, and each group's port there."""
        try:
            return FrontsView.model_validate_json(
                await self.quorum.ask_leader("GET", self._fronts())
            )
        except AdminRefusedError as error:
            older = f"The controllers of {self.quorum.name} are older than fronts: roll them first."
            return Unreachable(older if error.status == 404 else str(error))
        except QuorumUnreachableError as error:
            return Unreachable(str(error))
        except ValidationError:
            return Unreachable(f"{self.quorum.name} gave an answer that tells of no fronts.")

    async def declare_fronts(self, name: str, declaration: FrontsDeclaration) -> None:
        """Leads clients of the cluster to fronts."""
        await self.quorum.ask_leader("PUT", self._fronts(name), declaration.to_json())

    async def remove_fronts(self, name: str) -> None:
        """Leads clients back to the brokers; fronts that are not declared are fine."""
        await self.quorum.ask_leader("DELETE", self._fronts(name))

    async def queue_maps(self, topic: str | None = None) -> QueueMapsView:
        """The queue maps of the cluster; of one topic, with each of its queues.

        Raises:
            AdminRefusedError: the controllers are older than queue maps.
            QuorumUnreachableError: there is no answer.
            ValidationError: the answer tells of no queue maps.
        """
        query = "" if topic is None else "?" + urlencode({"topic": topic})
        data = await self.quorum.ask_leader("GET", self._queues() + query)
        return QueueMapsView.model_validate_json(data)

    async def map_queues(self, topic: str, wish: QueuesWish) -> QueueMapsView:
        """Makes or changes the map of a topic; raises as ``queue_maps``, or for its refusal."""
        data = await self.quorum.ask_leader("PUT", self._queues(topic), wish.to_json())
        return QueueMapsView.model_validate_json(data)

    async def rebalance(self, wish: RebalanceRequest) -> MovesView:
        """Evens out the queues over the broker groups; raises as ``queue_maps``."""
        path = f"/v1/clusters/{quote(self._cluster, safe='')}/queues-rebalance"
        return MovesView.model_validate_json(
            await self.quorum.ask_leader("POST", path, wish.to_json())
        )

    async def access(self) -> AccessView:
        """The users of the cluster, and whether its clients need them."""
        data = await self.quorum.ask_leader("GET", self._of_cluster("access"))
        return AccessView.model_validate_json(data)

    async def set_access(self, *, enabled: bool) -> None:
        """Says whether every request of a client needs a user."""
        body = AccessWish(enabled=enabled).to_json()
        await self.quorum.ask_leader("PUT", self._of_cluster("access"), body)

    async def create_user(self, name: str, wish: UserWish) -> None:
        """Makes a user."""
        await self.quorum.ask_leader("PUT", self._of_cluster("users", name), wish.to_json())

    async def update_user(self, name: str, wish: UserWish) -> None:
        """Changes what is named of a user."""
        await self.quorum.ask_leader("PATCH", self._of_cluster("users", name), wish.to_json())

    async def delete_user(self, name: str) -> None:
        """Deletes a user and its rules."""
        await self.quorum.ask_leader("DELETE", self._of_cluster("users", name))

    async def put_rules(self, name: str, rules: list[RuleWish]) -> None:
        """Gives a user rules."""
        body = RulesWish(rules=rules).to_json()
        await self.quorum.ask_leader("POST", self._of_cluster("users", name, "rules"), body)

    async def delete_rules(self, name: str, resource: str | None, policy: str) -> None:
        """Takes the rule on a resource from a user; None: all of its rules."""
        query = {"policy": policy} if resource is None else {"policy": policy, "resource": resource}
        path = self._of_cluster("users", name, "rules") + "?" + urlencode(query)
        await self.quorum.ask_leader("DELETE", path)

    async def is_secret_of(self, name: str, secret: str) -> bool:
        """Whether this is the secret of a user; raises AdminRefusedError where there is none."""
        path = self._of_cluster("users", name, "check")
        data = await self.quorum.ask_leader("POST", path, SecretCheck(secret=secret).to_json())
        return SecretCheckView.model_validate_json(data).matches

    async def topics(self, known: str = "", after: str = "") -> TopicList:
        """A page of the topics of the cluster; nothing but its stamp if that is ``known``."""
        query = urlencode({"known": known, "after": after, "limit": PAGE_MAX})
        data = await self.quorum.ask_leader("GET", f"{self._of_cluster('topics')}?{query}")
        return TopicList.model_validate_json(data)

    async def put_topic(self, topic: str, wish: TopicWish) -> TopicView:
        """Has every group of the cluster have a topic as it is wished."""
        path = self._of_cluster("topics", topic)
        data = await self.quorum.ask_leader("PUT", path, wish.to_json())
        return TopicView.model_validate_json(data)

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic in every group of the cluster; one that is not there is gone already."""
        await self.quorum.ask_leader("DELETE", self._of_cluster("topics", topic))

    async def consumer_groups(self, known: str = "", after: str = "") -> ConsumerGroupList:
        """A page of the settings of consumer groups; nothing but its stamp if it is ``known``."""
        query = urlencode({"known": known, "after": after, "limit": PAGE_MAX})
        path = f"{self._of_cluster('consumer-groups')}?{query}"
        return ConsumerGroupList.model_validate_json(await self.quorum.ask_leader("GET", path))

    async def put_consumer_group(self, group: str, wish: ConsumerGroupWish) -> ConsumerGroupView:
        """Has every broker group of the cluster keep the settings of a consumer group."""
        path = self._of_cluster("consumer-groups", group)
        data = await self.quorum.ask_leader("PUT", path, wish.to_json())
        return ConsumerGroupView.model_validate_json(data)

    async def reset_offsets(self, group: str, wish: OffsetResetWish) -> OffsetResetView:
        """Has brokers carry a request out where they have not; again is as good as once."""
        path = self._of_cluster("consumer-groups", group, "resets")
        data = await self.quorum.ask_leader("POST", path, wish.to_json())
        return OffsetResetView.model_validate_json(data)

    async def delete_consumer_group(self, group: str) -> None:
        """Deletes the settings of a consumer group; those that are not there are gone already."""
        await self.quorum.ask_leader("DELETE", self._of_cluster("consumer-groups", group))

    def _of_cluster(self, *parts: str) -> str:
        return "/v1/clusters/" + "/".join(quote(part, safe="") for part in (self._cluster, *parts))

    async def elect(self, name: str, broker_id: int, master_epoch: int) -> None:
        """Asks for a master, if the group is still in this epoch."""
        request = ElectRequest(broker_id=broker_id, master_epoch=master_epoch)
        await self.quorum.ask_leader("POST", self._path(name, "elect"), request.to_json())

    async def accept_loss(self, group: GroupView, broker_id: int) -> None:
        """Has a member elected that lacks what the group was seen to have confirmed."""
        body = AcceptLossRequest(
            broker_id=broker_id,
            master_epoch=group.master_epoch,
            confirmed_offset=group.confirmed_offset,
        ).to_json()
        await self.quorum.ask_leader("POST", self._path(group.name, "accept-loss"), body)

    async def adopt(self, group: GroupView, broker_ids: list[int], *, accept_missing: bool) -> None:
        """Has the quorum take over a group of another one."""
        body = AdoptRequest(
            broker_ids=broker_ids, master_epoch=group.master_epoch, accept_missing=accept_missing
        ).to_json()
        await self.quorum.ask_leader("POST", self._path(group.name, "adopt"), body)

    async def report_gone(self, name: str, pod_uid: str) -> None:
        """Says that the process in a pod has ended."""
        request = EvidenceRequest(pod_uid=pod_uid)
        await self.quorum.ask_leader("POST", self._path(name, "evidence"), request.to_json())

    async def retire(self, name: str, uid: str) -> None:
        """Says that the resource behind a group is gone."""
        body = RetireRequest(uid=uid).to_json()
        await self.quorum.ask_leader("POST", self._path(name, "retire"), body)

    async def drain(self, name: str, uid: str | None = None) -> None:
        """Has a group take no new messages, and serve those that it has."""
        body = DrainRequest(uid=uid).to_json()
        await self.quorum.ask_leader("PUT", self._path(name, "drain"), body)

    async def end_drain(self, name: str) -> None:
        """Has a group take messages again."""
        await self.quorum.ask_leader("DELETE", self._path(name, "drain"))

    async def forget_member(self, name: str, broker_id: int, incarnation: str | None) -> None:
        """Has a member that is gone struck from the record."""
        body = ForgetRequest(broker_id=broker_id, incarnation=incarnation).to_json()
        await self.quorum.ask_leader("POST", self._path(name, "forget"), body)

    async def fence_member(self, name: str, broker_id: int, *, fenced: bool) -> None:
        """Has a member taken out of its group for a while, or let in again."""
        body = FenceRequest(broker_id=broker_id, fenced=fenced).to_json()
        await self.quorum.ask_leader("PUT", self._path(name, "fence"), body)

    async def forget(self, name: str, uid: str) -> None:
        """Cleans a deleted group's metadata; a group that is gone already is fine."""
        try:
            await self.quorum.ask_leader("DELETE", f"{self._path(name)}?{urlencode({'uid': uid})}")
        except AdminRefusedError as error:
            if error.status != 404:
                raise
