"""Work of a load's slots at controllers: the honest write, the consistent read, preparation.

The write is AlterSyncStateSet (1001): the one that a running master sends. Each is a
compare-and-set on the epoch that the last one returned, so none is a repetition, none can be
answered without the log, and each slot works on a group of its own. Where many writes must meet on
few groups it is RegisterBroker of a broker that comes back at another address, which every
controller must log, too. The read is GetReplicaInfo, which every broker polls with, and which our
controllers answer linearizably.

The generator shares its processors with what it measures, so nothing is encoded per request: what
must differ from one to the next is a number of fixed width (JSON allows blanks before one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.frame import encode

from gantry_lab.bench.load import DONE, SlotWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gantry_lab.bench.load import Reply

CLUSTER = "bench"
NOWHERE = "127.0.0.1:9"  # the discard port: nobody listens where these brokers claim to be
FOREVER_MS = 600_000  # a heartbeat that counts for longer than any measurement
_NUMBER_WIDTH = 10  # digits of the widest int32
_PORT = 10_000  # this and as many above it have five digits


def name(number: int) -> str:
    """The broker name of group `number`; all are of one length."""
    return f"group-{number:07d}"


def frame(
    code: int,
    opaque: int,
    group: int,
    body: bytes = b"",
    *,
    cluster: str | None = CLUSTER,
    oneway: bool = False,
    **ext: object,
) -> bytes:
    """One request about a group, whole."""
    fields = {} if cluster is None else {"clusterName": cluster}
    fields |= {"brokerName": name(group)} | {key: str(value) for key, value in ext.items()}
    command = request(code, fields, body, oneway=oneway)
    command.opaque = opaque
    return encode(command)


def heartbeat(
    opaque: int,
    group: int,
    broker_id: int,
    address: str,
    *,
    timeout_ms: int = FOREVER_MS,
    oneway: bool = True,
) -> bytes:
    """BrokerHeartbeat (904); real brokers send it oneway."""
    return frame(
        RequestCode.BROKER_HEARTBEAT,
        opaque,
        group,
        oneway=oneway,
        brokerAddr=address,
        brokerId=broker_id,
        epoch=1,
        maxOffset=1000,
        confirmOffset=1000,
        heartbeatTimeoutMills=timeout_ms,
        electionPriority=2147483647,
    )


def register(opaque: int, group: int, broker_id: int, address: str) -> bytes:
    """RegisterBroker (1003): a started process says where it listens."""
    code = RequestCode.CONTROLLER_REGISTER_BROKER
    return frame(code, opaque, group, brokerId=broker_id, brokerAddress=address, invokeTime=0)


def set_change(opaque: int, group: int, members: bytes) -> bytes:
    """AlterSyncStateSet by broker 1, but for the set's epoch and what closes the body."""
    body = b'{"syncStateSet":[%b],"syncStateSetEpoch":%*d}' % (members, _NUMBER_WIDTH, 0)
    code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    whole = frame(
        code, opaque, group, body, cluster=None, masterBrokerId=1, masterEpoch=1, invokeTime=0
    )
    return whole[: -_NUMBER_WIDTH - 1]


def at_epoch(change: bytes, epoch: int) -> bytes:
    """The whole frame of a `set_change`."""
    return b"%b%*d}" % (change, _NUMBER_WIDTH, epoch)


class SetChanges(SlotWork):
    """AlterSyncStateSet by slot `n`, the master of group `first + n`: {1,2} and {1} in turn."""

    def __init__(self, slots: int, first: int = 0) -> None:
        self._heads = [
            [set_change(slot, first + slot, members) for members in (b"1", b"1,2")]
            for slot in range(slots)
        ]
        self._epochs = [1] * slots  # after the election, and the set is {1}

    def first(self, slot: int) -> bytes:
        """The change that is next."""
        epoch = self._epochs[slot]
        return at_epoch(self._heads[slot][epoch & 1], epoch)

    def following(self, slot: int, _reply: Reply, _body: memoryview) -> bytes:
        """One change after another."""
        self._epochs[slot] += 1
        return self.first(slot)


class Widenings(SlotWork):
    """AlterSyncStateSet (1001) once per group: all three replicas become members of the set."""

    def __init__(self, slots: int, groups: Sequence[int]) -> None:
        self._frames = [self._each(slot, groups[slot::slots]) for slot in range(slots)]

    def first(self, slot: int) -> bytes | None:
        """The next group."""
        return next(self._frames[slot], None)

    @staticmethod
    def _each(opaque: int, groups: Sequence[int]) -> Iterator[bytes]:
        for group in groups:
            yield at_epoch(set_change(opaque, group, b"1,2,3"), 1)


class Reads(SlotWork):
    """GetReplicaInfo (1004), of group `n` modulo `groups` by slot `n`."""

    def __init__(self, slots: int, groups: int) -> None:
        code = RequestCode.CONTROLLER_GET_REPLICA_INFO
        self._frames = [frame(code, slot, slot % groups, cluster=None) for slot in range(slots)]

    def first(self, slot: int) -> bytes:
        """The slot's question."""
        return self._frames[slot]


class Registrations(SlotWork):
    """RegisterBroker (1003): broker 2 at a new address each time; slots meet on `groups` groups."""

    def __init__(self, slots: int, groups: int) -> None:
        self._slots = slots
        self._groups = groups
        self._turns = [0] * slots
        self._parts: list[tuple[bytes, bytes, bytes]] = []
        for slot in range(slots):
            whole = register(slot, 0, 2, f"127.0.0.1:{_PORT}")
            opening, _, rest = whole.partition(name(0).encode())
            middle, _, end = rest.partition(str(_PORT).encode())
            self._parts.append((opening, middle, end))

    def first(self, slot: int) -> bytes:
        """The next group's registration; every number has its fixed width."""
        turn = self._turns[slot]
        self._turns[slot] = turn + 1
        group = (slot + turn * self._slots) % self._groups
        opening, middle, end = self._parts[slot]
        return b"%bgroup-%07d%b%d%b" % (opening, group, middle, _PORT + turn % _PORT, end)


class Births(SlotWork):
    """Groups to prepare: each slot takes one after the other, and its steps in order.

    Args:
        slots: how many at once.
        groups: their numbers.
        replicas: of each; broker 1 becomes the master.
        registered: so many of them register, too; None for all.
        alive: whether all of them beat once, for long.
        address: where broker `n` of a group listens.
    """

    codes = DONE | {int(ResponseCode.CONTROLLER_MASTER_STILL_EXIST)}

    def __init__(
        self,
        slots: int,
        groups: Iterable[int],
        *,
        replicas: int,
        registered: int | None = None,
        alive: bool = False,
        address: Callable[[int, int], str] = lambda _group, _broker_id: NOWHERE,
    ) -> None:
        numbers = list(groups)
        self._ids = range(1, replicas + 1)
        self._registered = replicas if registered is None else registered
        self._alive = alive
        self._address = address
        self._steps = [self._births(slot, numbers[slot::slots]) for slot in range(slots)]

    def first(self, slot: int) -> bytes | None:
        """The next step of the slot's present group."""
        return next(self._steps[slot], None)

    def _births(self, opaque: int, groups: Iterable[int]) -> Iterator[bytes]:
        """What brokers of the old kind say at their first start."""
        for group in groups:
            addresses = {item: self._address(group, item) for item in self._ids}
            for item, address in addresses.items():  # the check code makes a repetition harmless
                code = RequestCode.CONTROLLER_APPLY_BROKER_ID
                check = f"{address};1"
                yield frame(code, opaque, group, appliedBrokerId=item, registerCheckCode=check)
            for item in self._ids[: self._registered]:
                yield register(opaque, group, item, addresses[item])
            code = RequestCode.CONTROLLER_ELECT_MASTER
            yield frame(code, opaque, group, brokerId=1, designateElect="false", invokeTime=0)
            for item in self._ids if self._alive else ():
                yield heartbeat(opaque, group, item, addresses[item], oneway=False)
