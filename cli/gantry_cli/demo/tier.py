"""The tier of the demonstration: who uploads, how far, and what becomes of a frozen upload.

Everything here is read from the store alone, as somebody would who has only the bucket; no broker
is asked. Rule protected: the story says of an upload that it was refused only if its pack lies in
the store and no version ever named it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import msgspec
from gantry_broker.tier.stores.opening import open_store
from gantry_protocol.tier.keys import PackKey, Pair, parse_name

from gantry_cli.demo.report import TierAccount, Uploader
from gantry_cli.tier.reading import contents, listed, read_chain, read_on
from gantry_cli.tier.verifying import verify

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from gantry_broker.tier.stores.contract import Store
    from gantry_protocol.tier.judgement import Judgement


LINGER_MS = 100  # packs are small and many, so that there is something to see
LOOK_S = 0.2
CATCH_S = 0.0001  # between two looks for a pack
CATCH_PATIENCE_S = 10.0
HALT_S = 0.05  # a call that a stopped process is in may still end


def with_tier(objects: list[dict[str, object]], group: str, url: str) -> bytes:
    """The manifest's objects, with a tier at ``url`` for the group."""
    for item in objects:
        spec = item.get("spec")
        metadata = item.get("metadata")
        assert isinstance(metadata, dict)
        if item.get("kind") == "BrokerGroup" and metadata.get("name") == group:
            assert isinstance(spec, dict)
            spec["tier"] = {"url": url, "lingerMs": LINGER_MS}
    return b"\n---\n".join(msgspec.json.encode(item) for item in objects)


class TierWatch:
    """Follows the chain of one group in a store, from entering the context to leaving it.

    Args:
        root: the directory of the tier.
        group: name of the broker group.
        tell: gets a sentence for every claim.
    """

    def __init__(self, root: Path, group: str, tell: Callable[[str], None]) -> None:
        """Nothing is read yet."""
        self.judgement: Judgement | None = None
        self._root = root
        self._store: Store = open_store(root.as_uri())
        self._group = group
        self._tell = tell
        self._told = 0  # claims
        self._reading = asyncio.Lock()  # a version may be read once only
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def line(self) -> str:
        """One line for the screen."""
        if self.judgement is None or not self.judgement.claims:
            return "tier: nobody uploads yet"
        state, claim = self.judgement.state, self.judgement.claims[-1]
        return (
            f"tier: {claim.writer} uploads for epoch {claim.epoch} · version {state.v} · "
            f"committed {state.end}"
        )

    @property
    def end(self) -> int:
        """The tier holds everything below."""
        return 0 if self.judgement is None else self.judgement.state.end

    @property
    def epoch(self) -> int:
        """Of the newest claim; 0 before the first."""
        claims = [] if self.judgement is None else self.judgement.claims
        return claims[-1].epoch if claims else 0

    async def until(self, condition: Callable[[], bool], patience_s: float) -> bool:
        """Wait for a condition on the chain; False when it took longer."""
        deadline_s = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            await asyncio.sleep(LOOK_S / 4)
            self.raise_if_broken()
        return True

    def raise_if_broken(self) -> None:
        """Raise what ended the task, if it ended."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _follow(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read what was committed since the last look."""
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        if self.judgement is None:
            for found in (await contents(self._store)).groups:
                if found.group == self._group:
                    self.judgement = await read_chain(self._store, found.place)
        else:
            await read_on(self._store, self.judgement)
        if self.judgement is None:
            return
        for claim in self.judgement.claims[self._told :]:
            self._told += 1
            self._tell(
                f"{claim.writer} claims the tier for epoch {claim.epoch}: version {claim.v}, "
                f"from offset {claim.end} on"
            )

    # ---- a frozen upload

    async def freeze(self, send: Callable[[signal.Signals], object]) -> PackKey | None:
        """SIGSTOP the master between a pack and its commit, as a pause may strike.

        The two are some milliseconds apart. Somebody has to look without a pause to come between
        them: at nothing but the folder of the packs, from a thread, and with a signal that needs no
        more than a system call.

        Args:
            send: signals the master's process.

        Returns:
            The pack that lies in the store and is not committed; None if that moment did not come,
            and the process is frozen all the same.
        """
        deadline_s = time.monotonic() + CATCH_PATIENCE_S
        while True:
            await self.look()
            await asyncio.to_thread(self._strike, send, deadline_s)
            await asyncio.sleep(HALT_S)
            found = await self._uncommitted()
            if found is not None or time.monotonic() > deadline_s:
                return found
            send(signal.SIGCONT)

    def _strike(self, send: Callable[[signal.Signals], object], deadline_s: float) -> None:
        """SIGSTOP as soon as there is another pack; blocks until then."""
        folder = self._packs()
        before_ns = _changed_ns(folder)
        while _changed_ns(folder) == before_ns and time.monotonic() < deadline_s:
            time.sleep(CATCH_S)
        send(signal.SIGSTOP)

    def _packs(self) -> Path:
        """Where the newest claimant puts his packs."""
        if self.judgement is None:
            return self._root
        place, state = self.judgement.place, self.judgement.state
        return self._root / place.key(f"pack/{state.pair}")

    async def _uncommitted(self) -> PackKey | None:
        """The newest claimant's pack at the end of the chain that no version names yet."""
        if self.judgement is None:
            return None
        await self.look()
        place, state = self.judgement.place, self.judgement.state
        folder = f"pack/{state.pair}/"
        before = place.key(f"{folder}{state.end:020d}")  # sorts before the packs that begin there
        async for found in listed(self._store, place, folder, before):
            name = parse_name(found.key.removeprefix(place.prefix))
            if isinstance(name, PackKey) and name.lo == state.end:
                await self.look()  # it may have been committed meanwhile
                return name if self.judgement.state.end == name.lo else None
        return None

    def refused(self, pack: PackKey) -> str | None:
        """The process that took the place of the version with ``pack``; None: nobody has."""
        assert self.judgement is not None
        named = {item.entry.key for item in self.judgement.packs}
        for claim in self.judgement.claims:
            if Pair(claim.epoch, claim.inc) > pack.pair and str(pack) not in named:
                return (
                    f"its place, version {claim.v}, is {claim.writer}'s claim for epoch "
                    f"{claim.epoch}"
                )
        return None

    # ---- the account

    async def account(
        self, confirm: Callable[[], Awaitable[int]], load_end: int, refused: list[PackKey]
    ) -> TierAccount:
        """The verdict of `gantry tier verify`, with who uploaded when."""
        assert self.judgement is not None
        confirmed = 0

        async def known() -> int:
            nonlocal confirmed
            confirmed = await confirm()
            return confirmed

        verdict = await verify(self._store, self.judgement.place, lambda _: None, confirm=known)
        return TierAccount(
            uploaders=[
                Uploader(
                    epoch=claim.epoch, broker=claim.writer, version=claim.v, from_offset=claim.end
                )
                for claim in verdict.claims
            ],
            versions=verdict.v,
            packs=verdict.packs,
            records=verdict.records,
            committed_offset=verdict.end,
            load_end_offset=load_end,
            confirm_offset=confirmed,
            refused=[str(pack) for pack in refused],
            findings=[str(finding) for finding in verdict.findings],
        )


def _changed_ns(folder: Path) -> int:
    """When something was last put there; 0 while there is no such folder."""
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
