"""Broker groups with a tier, and everything that must never be so in the bucket.

Real replica cores and real upload roles; the controller is either the single one (``TierWorld``)
or a quorum (``WholeTierWorld``). Checked at each write of the store, so that a violation is found
at the step that causes it:

========  ========================================================================================
T1 – T3   the chain, folded by the format's own rules; a version is written once
T4        what a version names is there, with the size and the sum it says, and stays so
T5        the bytes of every pack are the confirmed history
T6        nothing beyond what some master has confirmed
T7        at a promotion: ``log_start <= T <= end``; no role halts on a clean winner
T8        the new master's log below T is the tier's
T9, T11   by the fold: one claim per pair, no key twice
T10       nobody trims beyond T
belief    what a role takes for the head is what the store holds under that number
T16       after the faults: the tier reaches everything confirmed
========  ========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gantry_broker.tier.core.values import Head
from gantry_protocol.tier.chain import ChainState, advance, empty
from gantry_protocol.tier.damage import ChainError
from gantry_protocol.tier.keys import ManKey, parse_key
from gantry_protocol.tier.manifests import Append, decode_version
from gantry_protocol.types import Offset
from sim.kernel.world import MS, SECOND, Violation
from sim.product.bucket import BucketOptions
from sim.replica_world import ReplicaWorld
from sim.replicas import Observer
from sim.tier.store import SimStore
from sim.tier.uploader import PLACE, TierBroker, crc_of
from sim.whole_world import WholeWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.replica import ReplicaCore
    from gantry_broker.replica import effects as fx
    from gantry_broker.tier.core.role import UploadRole
    from sim.kernel.machine import Actor, Host

TRIM_US = 300 * MS


class TierObserver(Observer, Protocol):
    """What an uploading broker is told and tells."""

    store: SimStore

    def trimmed(self, name: str) -> Offset: ...
    def trim_to(self, name: str, start: Offset) -> None: ...
    def committed(self, name: str, role: UploadRole) -> None: ...
    def halted(self, name: str, reason: str) -> None: ...


class TierMixin(ReplicaWorld):
    """A replica world whose brokers upload.

    Attributes:
        chain: the ghost: the fold of what the store holds.
    """

    def __init__(self, seed: int, *, swarm: bool = True) -> None:
        self._starts: dict[str, Offset] = {}
        self._crcs: dict[int, str] = {0: ChainState(shard="").crc}
        self.chain = empty(PLACE)
        super().__init__(seed, swarm=swarm)
        options = BucketOptions.swarm(self.world.stream("s")) if swarm else BucketOptions()
        self.store = SimStore(self.world, options)
        self.store.put = self._written
        self._trims = self.world.stream("trims")
        self.world.after(TRIM_US, self._trim)

    def _broker(self, host: Host) -> Actor:
        return TierBroker(host, self, [machine.name for machine in self.controllers])

    # ---- faults

    def extra_faults(self) -> dict[str, Callable[[], None]]:
        return {**super().extra_faults(), "zombie": self.zombie, "cut_off": self.cut_off}

    def zombie(self) -> None:
        """The master stands still for longer than it takes to replace it, and then goes on."""
        master = self.master()
        if master is not None:
            machine = self.network.machines[master.host.name]
            machine.pause(self._trims.randint(1, 4) * SECOND)

    def cut_off(self) -> None:
        """The master reaches the store and nobody else."""
        master = self.master()
        if master is not None:
            self.network.isolate(master.host.name)

    # ---- what brokers report

    def trimmed(self, name: str) -> Offset:
        return self._starts.get(name, Offset(0))

    def promoted(self, name: str, core: ReplicaCore, effect: fx.Promoted) -> None:
        super().promoted(name, core, effect)
        tier_end = self.chain.end
        if self.chain.v and not self.trimmed(name) <= tier_end <= core.log.end:
            raise Violation(
                f"T7: the log of {name} is [{self.trimmed(name)}, {core.log.end}), "
                f"the tier ends at {tier_end}"
            )
        log = self.network.machines[name].disk.file("log").data
        if log[:tier_end] != self.history[:tier_end]:
            raise Violation(f"T8: the log of {name} differs from the tier below {tier_end}")

    def committed(self, name: str, role: UploadRole) -> None:
        self.world.count("tier.commit")
        if role.chain.crc != self._crcs.get(role.chain.v):
            raise Violation(f"belief: {name} takes a version {role.chain.v} for the head")

    def halted(self, name: str, reason: str) -> None:
        raise Violation(f"T7: {name} halted: {reason}")

    # ---- what the store reports

    def _written(self, key: str, data: bytes) -> None:
        name = parse_key(PLACE, key)
        if key in self.store.objects:
            raise Violation(f"T1: {key} is written a second time")
        if isinstance(name, ManKey):
            self._version_written(name, data)

    def _version_written(self, name: ManKey, data: bytes) -> None:
        version = decode_version(data, PLACE, name.v)
        try:
            self.chain = advance(self.chain, (version,))
        except ChainError as error:
            raise Violation(f"chain: {error}") from error
        self._crcs[version.v] = version.crc32c
        self.world.note("version", version.v, type(version).__name__, version.pair, version.end)
        if isinstance(version, Append):
            for entry in version.add:
                self.check_pack(entry.key)
                if self.history[entry.lo : entry.hi] != self.object(entry.key):
                    beyond = entry.hi > len(self.history)
                    rule = "T6: goes beyond" if beyond else "T5: is not"
                    raise Violation(f"{entry.key} {rule} what is confirmed")

    def object(self, key: str) -> bytes:
        """The bytes of a pack; none when it is not there."""
        return self.store.objects.get(self.store.name(PLACE.key(key)), b"")

    def check_pack(self, key: str) -> None:
        """T4, for one pack of the ghost chain."""
        entry = next(one for one in reversed(self.chain.packs) if one.key == key)
        data = self.object(key)
        if (len(data), crc_of(data)) != (entry.size, entry.crc):
            raise Violation(f"T4: {key} is not there as the manifest says")

    def check_packs(self) -> None:
        """T3 to T5 for everything, from the bucket alone."""
        tiered = bytearray(self.history[: self.chain.start])
        for entry in self.chain.packs:
            self.check_pack(entry.key)
            tiered += self.object(entry.key)
        if tiered != self.history[: self.chain.end]:
            raise Violation("T5: the tier is not the confirmed history")

    # ---- local trimming, by what each broker can know

    def _trim(self) -> None:
        """Somebody trims; the master's head travels like a heartbeat and may come late."""
        self.world.after(TRIM_US, self._trim)
        broker = self.broker(self._trims.choice(self.brokers))
        share = self._trims.random()
        if isinstance(broker, TierBroker):
            hint = self._head()
            broker.host.after(self._trims.randint(1, 500) * MS, lambda: broker.trim(hint, share))

    def _head(self) -> Head | None:
        """What the master would tell its replicas."""
        master = self.master()
        if not isinstance(master, TierBroker) or master.role.committed_end is None:
            return None
        chain = master.role.chain
        return Head(v=chain.v, pair=chain.pair, end=Offset(chain.end))

    def trim_to(self, name: str, start: Offset) -> None:
        self.world.count("trim")
        self._starts[name] = start
        if start > self.chain.end:
            raise Violation(f"T10: {name} trims at {start}, T is {self.chain.end}")

    def wipe(self) -> None:
        lives = {machine.name: machine.wipes for machine in self.brokers}
        super().wipe()
        for machine in self.brokers:
            if machine.wipes != lives[machine.name]:
                self._starts.pop(machine.name, None)

    # ---- the end

    def reached(self, end: int) -> bool:
        return self.chain.end >= end

    def require_tier_progress(self, seconds: float = 60) -> None:
        """T16."""
        self.store.options.calm()
        self.require_progress()
        for machine in self.brokers:
            broker = self.broker(machine)
            if broker is not None:
                broker.writing = False
        end = len(self.history)
        if not self.world.run(for_us=int(seconds * SECOND), until=lambda: self.reached(end)):
            raise Violation(f"T16: the tier ends at {self.chain.end}, confirmed is {end}")
        self.check_packs()


class TierWorld(TierMixin):
    """With one controller, and volumes that are lost."""


class WholeTierWorld(TierMixin, WholeWorld):
    """With a quorum of controllers."""
