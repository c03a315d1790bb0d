"""A tier as a broker group leaves it in a directory: manifest versions, packs, meta.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from gantry_protocol.tier import chain, manifests
from gantry_protocol.tier.keys import ManKey, MetaKey, PackKey, Pair, Shard, shard
from gantry_protocol.tier.packs import BuiltPack, encode_pack
from gantry_protocol.types import Epoch, EpochEntry, Offset
from support.tier_logs import Sent, build_log, key_of

WRITTEN_MS = 1_700_000_100_000


class TierDirectory:
    """One broker group below ``root``. Every call commits one version and keeps the state."""

    def __init__(
        self, root: Path, uid: str = "7c9e6679", cluster: str = "demo", group: str = "orders"
    ) -> None:
        self.root = root
        self.place: Shard = shard(cluster, uid)
        self.state = chain.empty(self.place)
        self.lineage: list[EpochEntry] = []
        self.log = b""  # all that was uploaded
        self._queues: dict[tuple[str, int], int] = {}
        self._nonces = 0
        owner = manifests.Owner(
            shard=uid, cluster=cluster, group=group, created_ms=1_700_000_000_000
        )
        self.put(str(MetaKey()), manifests.encode(manifests.seal(owner)))

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def path(self, name: str) -> Path:
        """Where the object lies."""
        return self.root / self.place.key(name)

    def put(self, name: str, data: bytes) -> None:
        """Write an object as it is."""
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_bytes(data)

    def nonce(self) -> str:
        self._nonces += 1
        return f"{self._nonces:032x}"

    def claim(self, epoch: int, inc: int = 1, *, start: int = 0) -> None:
        """A master takes the chain over; from here on its epoch writes the log."""
        first = self.state.v == 0
        self.commit(
            chain.claim(
                self.state,
                pair=Pair(epoch, inc),
                writer=f"orders-broker-{epoch}",
                nonce=self.nonce(),
                at_ms=WRITTEN_MS + self.state.v * 1000,
                start=start if first else None,
            )
        )
        self.lineage.append(EpochEntry(Epoch(epoch), Offset(self.state.end)))

    def take(self, owner: str) -> None:
        """Another group takes the tier over; its first master is the one of the next epoch."""
        at_ms = WRITTEN_MS + self.state.v * 1000
        nonce = self.nonce()
        self.commit(chain.take(self.state, owner=owner, writer="w", nonce=nonce, at_ms=at_ms))
        self.claim(self.state.pair.epoch + 1)

    def numbered(self, messages: Sequence[Sent | None]) -> list[Sent | None]:
        """The messages with the queue offsets that follow those of earlier calls."""
        found: list[Sent | None] = []
        for sent in messages:
            if sent is not None and sent.queue_offset is None:
                queue = (sent.topic, sent.queue_id)
                offset = self._queues.get(queue, 0)
                self._queues[queue] = offset + 1
                found.append(sent._replace(queue_offset=offset))
            else:
                found.append(sent)
        return found

    def build(self, messages: Sequence[Sent | None]) -> BuiltPack:
        """A pack of the messages at the tier's end; nothing is written."""
        return self._build(self.state.end, messages)

    def _build(self, lo: int, messages: Sequence[Sent | None]) -> BuiltPack:
        log = build_log(lo, self.numbered(messages))
        key = key_of(lo, log, self.state.pair, self.nonce())
        return encode_pack(log, self.place, key, self.lineage)

    def append(self, messages: Sequence[Sent | None]) -> BuiltPack:
        """Upload and commit one pack of the messages."""
        pack = self.build(messages)
        self.put(str(pack.key), pack.data)
        self.add(pack)
        return pack

    def append_together(self, *groups: Sequence[Sent | None]) -> None:
        """Upload a pack per group, and commit all in one version."""
        packs: list[BuiltPack] = []
        for group in groups:
            packs.append(self._build(packs[-1].key.hi if packs else self.state.end, group))
            self.put(str(packs[-1].key), packs[-1].data)
        self.add(*packs)

    def add(self, *packs: BuiltPack) -> None:
        """Commit packs, wherever they are."""
        self.commit(
            chain.append(
                self.state,
                [pack.entry for pack in packs],
                lineage=self.lineage,
                tail=packs[-1].tail,
                writer=self.state.writer,
                nonce=self.nonce(),
                at_ms=WRITTEN_MS + self.state.v * 1000,
            )
        )

    def commit(self, version: manifests.Version) -> None:
        """Write a version that fits."""
        self.state = chain.apply(self.state, version)
        self.put(str(ManKey(version.v)), manifests.encode(version))

    def forge_overlap(self) -> PackKey:
        """Add a version whose pack begins below the tier's end; all else about it is right."""
        whole, last = self.state, self.state.packs[-1]
        self.state = msgspec.structs.replace(whole, end=last.lo + 3)
        pack = self.build(messages("orders", 2))
        self.put(str(pack.key), pack.data)
        forged = chain.append(
            self.state,
            [pack.entry],
            lineage=(),
            tail=pack.tail,
            writer="forger",
            nonce=self.nonce(),
            at_ms=1,
        )
        self.put(str(ManKey(forged.v)), manifests.encode(forged))
        self.state = whole
        return pack.key

    def flip(self, name: str, at: int) -> None:
        """Change one bit of an object."""
        data = bytearray(self.path(name).read_bytes())
        data[at] ^= 0x10
        self.path(name).write_bytes(data)


def messages(topic: str, count: int, *, queues: int = 2, tags: str = "red") -> list[Sent]:
    """Some messages, spread over queues."""
    return [Sent(topic, i % queues, f"{topic}-{i}".encode() * 3, tags) for i in range(count)]
