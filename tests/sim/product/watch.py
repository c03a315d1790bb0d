"""What must never be so, whatever happens: checked on the product's own objects and files.

=====  ===========================================================================================
H1     one process serves an epoch; epochs that are served grow
H5     confirm never falls while a process lives; what is confirmed is the same bytes on everybody,
       and on the disk of every member of the newest sync-state set
H9     consumers are given what is confirmed
ack    a record that was answered with 0 is durable on at least ``min_in_sync`` members
raft   one leader in a term; the same index holds the same state on every controller
=====  ===========================================================================================

What concerns logs, lineages and sets in the rest of H1 to H13 is in ``log_watch``.

At the end the ledger of the clients is judged as well: nothing acknowledged is lost, nothing is
delivered twice without a lost answer that explains it, nothing changes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.records.ids import decode_offset_msg_id
from sim.kernel.world import MS, Violation
from sim.product.cluster import CLUSTER, MANY_PORT
from sim.product.log_watch import LogWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.product.cluster import Cluster, Node

LOOK_US = 20 * MS


class Watch:
    """See the module.

    Args:
        cluster: that is looked at.
        group: of whose brokers; the first one looks at the controllers as well.

    Attributes:
        confirmed: the confirmed log, as whoever confirmed it first had it; from ``base`` on.
        acks: answers of 0 that clients got.
        more: checks of parts that not every cluster has.
        is_over: the history that it knows counts no more.
    """

    def __init__(self, cluster: Cluster, group: str | None = None) -> None:
        self.cluster = cluster
        self.group = group or cluster.groups[0]
        self.confirmed = bytearray()
        self.acks = 0
        self.more: list[Callable[[], None]] = []
        self.is_over = False
        self.logs = LogWatch(cluster, self.group, self.confirmed)
        self._served: dict[int, str] = {}  # epoch: incarnation
        self._confirms: dict[str, int] = {}  # by incarnation
        self._compared: dict[str, int] = {}  # by incarnation: how far its log was compared
        self._leaders: dict[int, int] = {}  # term: process
        self._digests: dict[int, int] = {}  # index: digest
        self._agreed = 0  # index of the newest state that was seen
        self._broken: Violation | None = None  # what was found where it cannot be told
        cluster.looks.append(self.check)
        cluster.world.after(LOOK_US, self._look)

    def _look(self) -> None:
        self.cluster.world.after(LOOK_US, self._look)
        self.check()

    def check(self) -> None:
        """Look at everybody.

        Raises:
            Violation: something must not be so.
        """
        self._check_groups()
        if self.is_over:
            return
        for node in self.cluster.controllers if self.group == self.cluster.groups[0] else ():
            controller = self.cluster.controller_of(node)
            if controller is not None:
                self._check_controller(node, controller)
        self.logs.check_numbers()
        self._check_set()
        for check in self.more:
            check()

    def _check_groups(self) -> None:
        if self._broken is not None:
            raise self._broken
        for node in () if self.is_over else self.cluster.brokers:
            group = self.cluster.group_of(node, self.group)
            if group is not None and group.core is not None:
                self._check_group(node, group)

    def _check_set(self) -> None:
        """Whoever is in the newest set holds everything confirmed, on its disk."""
        states = [
            controller.machine.state
            for controller in map(self.cluster.controller_of, self.cluster.controllers)
            if controller is not None and controller.node._running
        ]
        newest = max(states, key=lambda state: int(state.index), default=None)
        if newest is None or int(newest.index) < self._agreed:
            return  # controllers that have just come back do not know yet what they agreed on
        self._agreed = int(newest.index)
        agreed = newest.groups.get((CLUSTER, self.group))
        if agreed is None:
            return
        self.logs.check_set(agreed, int(newest.index))
        self._check_ids(agreed)
        if not set(agreed.fenced).isdisjoint(agreed.sync_state_set):
            raise Violation(f"H14: somebody in {agreed.sync_state_set} is fenced: {agreed}")
        epochs = (int(agreed.master_epoch), agreed.sync_state_set_epoch)
        for node in self.cluster.brokers:
            if epochs <= self.cluster.put_back.get(node.name, (0, 0)):
                continue  # nobody has decided anything since
            group = self.cluster.group_of(node, self.group)
            if group is None or group.core is None or group.core.me not in agreed.sync_state_set:
                continue
            if int(group._store.log.flushed) < len(self.confirmed):
                raise Violation(
                    f"H5: {node.name} is in the set {agreed.sync_state_set} and has "
                    f"{group._store.log.flushed} of {len(self.confirmed)} confirmed bytes"
                )

    def _check_ids(self, agreed: Any) -> None:
        """Nobody takes part under an id that another volume was given. Raises Violation."""
        for node in self.cluster.brokers:
            group = self.cluster.group_of(node, self.group)
            agent = None if group is None else group._agent
            member = None if agent is None else agreed.member(agent.broker_id)
            if member is None or member.incarnation != group.incarnation:
                continue
            if agent._joining.check_code != member.check_code:
                raise Violation(
                    f"{node.name} registered as broker {member.broker_id}, which is the volume's"
                    f" that applied with {member.check_code}"
                )

    def served(self, end: int, group: str) -> None:
        """A consumer of ``group`` was given a record that ends there.

        Raises:
            Violation: it is not confirmed.
        """
        if end > len(self.confirmed):
            self._check_groups()
        if end > len(self.confirmed):
            # A reader may swallow this; the next look raises it again.
            self._broken = Violation(
                f"H9: bytes up to {end} are served, {len(self.confirmed)} are confirmed"
            )
            raise self._broken

    # ---- brokers

    def _check_group(self, node: Node, group: Any) -> None:
        core = group.core
        serving = core.serving
        if serving is not None:
            epoch = int(serving.epoch)
            if self._served.setdefault(epoch, group.incarnation) != group.incarnation:
                raise Violation(f"H1: epoch {epoch} is served by two processes, now {node.name}")
        confirm = int(core.log.confirm)
        before = self._confirms.get(group.incarnation, 0)
        if confirm < before:
            raise Violation(f"H5: confirm of {node.name} falls from {before} to {confirm}")
        self._confirms[group.incarnation] = confirm
        self._compare(node, group, confirm)
        self.logs.check_member(node, group)

    def _compare(self, node: Node, group: Any, confirm: int) -> None:
        """Everything confirmed is the same bytes everywhere."""
        log = group._store.log
        at = max(self._compared.get(group.incarnation, 0), int(log.log_start))
        confirm = min(confirm, int(log.flushed))  # a file may be longer than what is written
        if confirm <= at:
            return
        data = self.cluster.logs.read(node, self.group, at, confirm)
        if len(data) < confirm - at:
            return  # a file that is just being made or cut; looked at again
        self._compared[group.incarnation] = confirm
        known = bytes(self.confirmed[at:confirm])
        rotten = [one - at for one in self.cluster.flipped.get(node.name, ()) if at <= one]
        if rotten:  # as its checksums see it, too: it is mended, or never served
            mended = bytearray(data)
            for where in rotten:
                mended[where : where + 1] = known[where : where + 1]
            data = bytes(mended)
        if data[: len(known)] != known:
            where = next(i for i, (a, b) in enumerate(zip(data, known, strict=False)) if a != b)
            here, there = (
                data[max(0, where - 8) :][:60].hex(),
                known[max(0, where - 8) :][:60].hex(),
            )
            raise Violation(
                f"H5: {node.name} has other confirmed bytes at {at + where}: {here} not {there}"
            )
        if at > len(self.confirmed):
            self.confirmed.extend(bytes(at - len(self.confirmed)))
        self.confirmed.extend(data[len(known) :])

    def acknowledged(self, key: str, offset_id: str) -> None:
        """A client was answered 0.

        Raises:
            Violation: too few members have the record on their disks.
        """
        self.acks += 1
        self.cluster.world.count("acknowledged")
        logs = self.cluster.logs
        offset = int(decode_offset_msg_id(offset_id)[1])
        holders = [
            node.name
            for node in self.cluster.brokers
            if key.encode() in logs.read(node, self.group, offset, offset + 4096)
            and logs.is_durable(node, self.group, offset)
        ]
        if len(holders) < self.cluster.min_in_sync:
            raise Violation(f"ack: {key} at {offset} was answered 0 and is on {holders} only")

    # ---- controllers

    def _check_controller(self, node: Node, controller: Any) -> None:
        raft = controller.node
        if not raft._running:
            return
        if raft.role.value == "leader":
            pid = node.process.pid if node.process is not None else 0
            before = self._leaders.setdefault(int(raft.term), pid)
            if before != pid:
                raise Violation(f"raft: two leaders in term {raft.term}")
        point = controller.machine.point
        before = self._digests.setdefault(int(point.index), int(point.digest))
        if before != int(point.digest):
            raise Violation(f"raft: {node.name} has another state at index {point.index}")


class Watches:
    """A ``Watch`` for each group; an acknowledgement is for the one at whose port it was given."""

    def __init__(self, first: Watch) -> None:
        cluster = first.cluster
        self._watches = [first, *(Watch(cluster, name) for name in cluster.groups[1:])]
        self._first = first
        self._by_name = {watch.group: watch for watch in self._watches}

    def acknowledged(self, key: str, offset_id: str) -> None:
        """See ``Watch.acknowledged``. Raises Violation."""
        (_, port), _ = decode_offset_msg_id(offset_id)
        place = port - MANY_PORT
        self._watches[place].acknowledged(key, offset_id)
        self._first.acks += place > 0

    def served(self, end: int, group: str) -> None:
        """See ``Watch.served``. Raises Violation."""
        self._by_name[group].served(end, group)
