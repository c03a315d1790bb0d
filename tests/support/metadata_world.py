"""A small vocabulary for stories about the metadata: one state, events applied in order.

Every event passes through its bytes on the way, as it does in the log.
"""

from collections.abc import Iterable

from gantry_controller.metadata.apply import apply
from gantry_controller.metadata.clients import Client, ConsumerGroup, QueueOwner, Subscription
from gantry_controller.metadata.confirmed import Floor, Loss
from gantry_controller.metadata.draining import Drain
from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    ChangeSettings,
    CleanBrokerData,
    CreateUser,
    DeclareFronts,
    DeclareGroup,
    DeleteKv,
    DeleteTopic,
    DeleteUser,
    ElectMaster,
    Event,
    FloorRow,
    ForgetMember,
    LiveMember,
    MapQueues,
    PutKv,
    PutSubscriptionGroup,
    RaiseFloors,
    RegisterBroker,
    ReportConsumers,
    ReportLocks,
    RetireGroup,
    SetWritable,
    decode_event,
    encode_event,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup, MetadataState
from gantry_protocol.types import BrokerId, Epoch, Index, Offset

CLUSTER = "c"
NAME = "broker-a"


def address(broker_id: int) -> str:
    return f"127.0.0.{broker_id}:10911"


def incarnation(broker_id: int, start: int = 1) -> str:
    return f"{broker_id}-{start}"


class World:
    """One group ``broker-a``; ``own=False``: brokers are Java's, undeclared, without nonces."""

    def __init__(self, *, own: bool = True) -> None:
        self.state = MetadataState()
        self.own = own

    @property
    def group(self) -> BrokerGroup:
        group = self.state.groups[CLUSTER, NAME]
        assert isinstance(group, BrokerGroup)
        return group

    def apply(self, event: Event) -> Result:
        return apply(self.state, Index(self.state.index + 1), decode_event(encode_event(event)))

    def declare(
        self, replicas: int = 3, minimum: int = 2, *, uid: str = "u1", route: str | None = None
    ) -> Result:
        return self.apply(
            DeclareGroup(
                cluster=CLUSTER,
                name=NAME,
                uid=uid,
                replicas=replicas,
                min_in_sync_replicas=minimum,
                route_address=route,
            )
        )

    def apply_id(self, broker_id: int, code: str | None = None, name: str = NAME) -> Result:
        return self.apply(
            ApplyBrokerId(
                cluster=CLUSTER,
                name=name,
                broker_id=BrokerId(broker_id),
                check_code=f"{address(broker_id)};1" if code is None else code,
            )
        )

    def register(self, broker_id: int, *, start: int = 1, last_epoch: int = 0) -> Result:
        return self.apply(
            RegisterBroker(
                cluster=CLUSTER,
                name=NAME,
                broker_id=BrokerId(broker_id),
                address=address(broker_id),
                incarnation=incarnation(broker_id, start) if self.own else "",
                pod_uid=f"pod-{broker_id}" if self.own else None,
                ha_port=10912 if self.own else None,
                last_epoch=Epoch(last_epoch),
            )
        )

    def join(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            assert self.apply_id(broker_id).ok
            assert self.register(broker_id).ok

    def live(self, broker_id: int, *, start: int | None = None, **facts: object) -> LiveMember:
        """Evidence about the process that is registered now, unless ``start`` names another."""
        member = self.group.member(BrokerId(broker_id))
        if start is not None:
            signed = incarnation(broker_id, start)
        else:
            signed = member.incarnation if self.own and member is not None else ""
        return LiveMember(broker_id=BrokerId(broker_id), incarnation=signed, **facts)  # type: ignore[arg-type]  # facts are typed by the caller

    def alive(self, broker_ids: Iterable[int]) -> tuple[LiveMember, ...]:
        return tuple(self.live(one, epoch=Epoch(1), max_offset=Offset(10)) for one in broker_ids)

    def elect(
        self,
        requester: int | None = None,
        *,
        live: Iterable[int | LiveMember],
        designate: bool = False,
        epoch: int | None = None,
        waited: bool = False,
        signed: str = "",
    ) -> Result:
        evidence = tuple(
            one
            if isinstance(one, LiveMember)
            else self.live(one, epoch=Epoch(1), max_offset=Offset(10))
            for one in live
        )
        return self.apply(
            ElectMaster(
                cluster=CLUSTER,
                name=NAME,
                requester=None if requester is None else BrokerId(requester),
                designate=designate,
                incarnation=signed,
                expected_epoch=None if epoch is None else Epoch(epoch),
                live=evidence,
                first_wait_over=waited,
            )
        )

    def alter(
        self,
        new_set: Iterable[int],
        *,
        live: Iterable[int],
        master: int | None = None,
        master_epoch: int | None = None,
        set_epoch: int | None = None,
        signed: str = "",
    ) -> Result:
        group = self.group
        return self.apply(
            AlterSyncStateSet(
                cluster=CLUSTER,
                name=NAME,
                master_id=BrokerId(master if master is not None else group.master_id or -1),
                master_epoch=Epoch(group.master_epoch if master_epoch is None else master_epoch),
                incarnation=signed,
                new_set=tuple(BrokerId(one) for one in new_set),
                expected_set_epoch=group.sync_state_set_epoch if set_epoch is None else set_epoch,
                live=self.alive(live),
            )
        )

    def retire(self, uid: str = "u1") -> Result:
        return self.apply(RetireGroup(cluster=CLUSTER, name=NAME, uid=uid))

    def forget(self, broker_id: int, *, live: Iterable[int] = (), start: int = 1) -> Result:
        return self.apply(
            ForgetMember(
                cluster=CLUSTER,
                name=NAME,
                broker_id=BrokerId(broker_id),
                incarnation=incarnation(broker_id, start) if self.own else "",
                live=self.alive(live),
            )
        )

    def clean(
        self, ids: Iterable[int] | None = None, *, live: Iterable[int] = (), living: bool = False
    ) -> Result:
        return self.apply(
            CleanBrokerData(
                cluster=CLUSTER,
                name=NAME,
                broker_ids=None if ids is None else tuple(BrokerId(one) for one in ids),
                clean_living=living,
                live=self.alive(live) if (CLUSTER, NAME) in self.state.groups else (),
            )
        )


def three_in_sync(*, own: bool = True) -> World:
    """Brokers 1, 2, 3; master 1 in epoch 1; all in the set, whose epoch is 2 (``mockMetaData``)."""
    world = World(own=own)
    if own:
        world.declare()
    world.join(1, 2, 3)
    assert world.elect(1, live=[1, 2, 3]).ok
    assert world.group.master_id == 1
    assert world.alter([1, 2, 3], live=[1, 2, 3]).ok
    return world


def consumers(world: World) -> None:
    """A subscription group, and consumer groups that came and went; broker 1 is the master."""

    def members(*clients: str) -> ConsumerGroup:
        return ConsumerGroup(tuple(map(Client, clients)), (Subscription("zeta"), Subscription("a")))

    world.apply(PutSubscriptionGroup(cluster=CLUSTER, name=NAME, group="g", config=b"{}"))
    reports: list[dict[str, ConsumerGroup | None]] = [
        {name: members("b", "a", name) for name in ("g", "h", "Billing", "%weird|", "x")},
        {"x": None, "h": members("c")},
    ]
    for groups in reports:
        result = world.apply(
            ReportConsumers(
                cluster=CLUSTER,
                name=NAME,
                broker_id=BrokerId(1),
                master_epoch=world.group.master_epoch,
                incarnation=world.group.master_incarnation,
                groups=groups,
            )
        )
        assert result.ok, result
    for serial, owner in ((1, "b"), (2, "a"), (3, "")):
        result = world.apply(
            ReportLocks(
                cluster=CLUSTER,
                name=NAME,
                broker_id=BrokerId(1),
                master_epoch=world.group.master_epoch,
                incarnation=world.group.master_incarnation,
                serial=serial,
                groups={
                    "h": (QueueOwner("zeta", 1, owner), QueueOwner("zeta", 0, "c")),
                    "g": (QueueOwner("a", serial, owner),),
                },
            )
        )
        assert result.ok, result


def told_by_tools(world: World) -> None:
    """Key-values that came and went, no writes to a group, a drain, a setting, a floor, fronts …"""
    row = FloorRow(CLUSTER, NAME, world.group.master_epoch, Epoch(1), Offset(5))
    assert world.apply(RaiseFloors(rows=(row,))).changed
    loss = Loss(Epoch(1), BrokerId(3), Epoch(0), Offset(4), Floor(Epoch(0), Offset(9)), 1)
    world.state.put_plain("losses", (CLUSTER, NAME), loss)
    fronts = DeclareFronts(cluster=CLUSTER, name="f", address="h", first_port=10950, ports=16)
    assert world.apply(fronts).changed
    for topic in ("mapped", "gone"):
        assert world.apply(MapQueues(cluster=CLUSTER, topic=topic, queues=3)).changed
    assert world.apply(DeleteTopic(cluster=CLUSTER, name="", topic="gone")).changed
    world.state.put_plain("drains", (CLUSTER, NAME), Drain(1))
    world.state.put_plain("newcomers", (CLUSTER, NAME), Index(1))
    for user in ("admin", "gone"):
        made = CreateUser(cluster=CLUSTER, user=user, secret=9 * "s", kind="Super", status="enable")
        assert world.apply(made).changed
    assert world.apply(DeleteUser(cluster=CLUSTER, user="gone")).changed
    for chosen in ("false", "true"):
        world.apply(ChangeSettings(settings={"orderMessageEnable": chosen}))
    world.apply(SetWritable(cluster=CLUSTER, name=NAME, writable=False))
    for namespace, key in (("n", "b"), ("n", "a"), ("gone", "k"), ("m", "k"), ("n", "zeta")):
        assert world.apply(PutKv(namespace=namespace, key=key, value="v")).changed
    for namespace, key in (("gone", "k"), ("n", "b")):
        assert world.apply(DeleteKv(namespace=namespace, key=key)).changed
