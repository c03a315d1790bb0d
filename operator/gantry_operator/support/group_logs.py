"""Logs of a group's pods, of its quorum and fronts, read together or followed.

Bounded: a few logs at a time, so many bytes of each; to follow, so many logs at all, and a reader
that is slow slows the logs down.
"""

from __future__ import annotations

import asyncio
import codecs
from typing import TYPE_CHECKING, Final

import msgspec
from gantry_protocol.errors import GantryError

from gantry_operator import names
from gantry_operator.api.errors import ApiError, NotFound
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP, POD, Kind
from gantry_operator.support.log_lines import LogLine, LogSource, Prefixes, merged, parsed
from gantry_operator.support.material import AT_ONCE, OURS, reason
from gantry_operator.support.pod_logs import TAIL_LINES, last_bytes, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gantry_operator.api.protocol import Body, SupportApi
    from gantry_operator.support.material import Tell

LOG_BYTES: Final = 16 * 1024 * 1024
FOLLOWED_MAX: Final = 100
QUEUE_MAX: Final = 10_000
HOLD_S: Final = 0.3
"""Lines are held back so long to be put in order: each node sends at its own pace."""
LOOK_S: Final = 5.0
LINE_BYTES_MAX: Final = 256 * 1024

COMPONENTS: Final = {
    BROKER_GROUP.kind: names.BROKER,
    CONTROLLER_GROUP.kind: names.CONTROLLER,
    FRONT_GROUP.kind: names.FRONT,
}
_SHORT: Final = {
    "bg": BROKER_GROUP,
    "brokergroup": BROKER_GROUP,
    "cg": CONTROLLER_GROUP,
    "controllergroup": CONTROLLER_GROUP,
    "fg": FRONT_GROUP,
    "frontgroup": FRONT_GROUP,
}
_MAIN: Final = frozenset({*COMPONENTS.values(), names.DOOR})


class LogsWanted(msgspec.Struct, frozen=True):
    """The logs that are wanted.

    Attributes:
        all_of_it: those of the group's quorum and fronts, too; of a quorum, of all its groups.
        containers: also those that are not ours, and those that prepare a pod.
        previous: of the runs before the present ones.
        since_s: not older than so many seconds; None for `tail`.
        tail: the last lines of each.
    """

    group: str
    all_of_it: bool = False
    containers: bool = False
    previous: bool = False
    since_s: int | None = None
    tail: int = 200

    def query(self) -> dict[str, str]:
        """As the API server wants to be asked."""
        if self.since_s is not None:
            return {"sinceSeconds": str(self.since_s)}
        return {"tailLines": str(self.tail)}


def kind_and_name(given: str) -> tuple[Kind | None, str]:
    """The kind, if it was given, and the name: `orders`, `bg/orders`, `brokergroup/orders`.

    Raises:
        GantryError: there is no such kind.
    """
    kind, slash, name = given.rpartition("/")
    if not slash:
        return None, given
    found = _SHORT.get(kind.lower().removesuffix("s"))
    if found is None:
        raise GantryError(f"{kind} is no kind of group: give bg/NAME, cg/NAME or fg/NAME.")
    return found, name


async def find(api: SupportApi, namespace: str, given: str) -> tuple[Kind, Body]:
    """The group that is meant.

    Raises:
        GantryError: there is none, or more than one, or it cannot be read.
    """
    kind, name = kind_and_name(given)
    found: list[tuple[Kind, Body]] = []
    for one in (BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP) if kind is None else (kind,):
        try:
            found.append((one, await api.get(one, namespace, name)))
        except NotFound:
            continue
        except ApiError as error:
            raise GantryError(f"{one.kind} {namespace}/{name}: {reason(error)}.") from error
    if not found:
        what = "group" if kind is None else kind.kind
        raise GantryError(
            f"There is no {what} {name} in namespace {namespace}; see kubectl gantry status."
        )
    if len(found) > 1:
        kinds = " and ".join(one.kind for one, _ in found)
        raise GantryError(f"{name} is the name of a {kinds}: give bg/{name}, cg/… or fg/….")
    return found[0]


async def sources(api: SupportApi, namespace: str, wanted: LogsWanted) -> list[LogSource]:
    """The logs that are wanted and there.

    Raises:
        GantryError: there is no such group, or its pods cannot be read.
    """
    kind, body = await find(api, namespace, wanted.group)
    try:
        groups = [(kind, body)]
        if wanted.all_of_it:
            groups += await _related(api, namespace, kind, body)
        found: list[LogSource] = []
        for one, group in groups:
            name = group["metadata"]["name"]
            labels = (
                f"{OURS},{names.LABEL_COMPONENT}={COMPONENTS[one.kind]},"
                f"{names.LABEL_INSTANCE}={name}"
            )
            async for pod in api.list_all(POD, namespace, labels):
                found += of_pod(pod, one, group, wanted)
    except ApiError as error:
        raise GantryError(f"The pods of {wanted.group} cannot be read: {reason(error)}.") from error
    return sorted(found, key=lambda source: (source.run.pod, source.run.container))


async def _related(
    api: SupportApi, namespace: str, kind: Kind, body: Body
) -> list[tuple[Kind, Body]]:
    """The quorum and the fronts of a group; of a quorum, all that refer to it."""
    cluster = _cluster(kind, body)
    others = {BROKER_GROUP: kind == CONTROLLER_GROUP, CONTROLLER_GROUP: True, FRONT_GROUP: True}
    return [
        (one, other)
        for one, is_wanted in others.items()
        if is_wanted
        async for other in api.list_all(one, namespace)
        if _cluster(one, other) == cluster
        and (one, other["metadata"]["name"]) != (kind, body["metadata"]["name"])
    ]


def _cluster(kind: Kind, body: Body) -> str:
    if kind == CONTROLLER_GROUP:
        return str(body["metadata"]["name"])
    reference = (body.get("spec") or {}).get("controllerRef") or {}
    return str(reference.get("name") or "")


def of_pod(pod: Body, kind: Kind, group: Body, wanted: LogsWanted) -> list[LogSource]:
    """The logs of a pod that are wanted."""
    name = pod["metadata"]["name"]
    role, leads = _role(pod, kind, group)
    found = []
    for run in runs_of(pod):
        if run.previous != wanted.previous:
            continue
        if run.container not in _MAIN and not wanted.containers:
            continue
        is_main = run.container == COMPONENTS[kind.kind]
        label = name if is_main else f"{name}/{run.container}"
        found.append(LogSource(run, label, role, leads, f"{run} {_count(pod, run.container)}"))
    return found


def _role(pod: Body, kind: Kind, group: Body) -> tuple[str, bool]:
    name, status = pod["metadata"]["name"], group.get("status") or {}
    if kind == FRONT_GROUP:
        return names.FRONT, False
    if kind == CONTROLLER_GROUP:
        leads = (status.get("leader") or {}).get("pod") == name
        return ("leader" if leads else "follower"), leads
    given = (pod["metadata"].get("labels") or {}).get(names.LABEL_ROLE)
    leads = given == names.ROLE_MASTER
    return given or "-", leads


def _count(pod: Body, container: str) -> str:
    """Something that differs from run to run of a container of a name."""
    status = pod.get("status") or {}
    for part in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(part) or ():
            if one["name"] == container:
                return f"{pod['metadata'].get('uid')} {one.get('restartCount') or 0}"
    return ""


async def show(
    api: SupportApi, namespace: str, wanted: LogsWanted, line: Callable[[str], None], tell: Tell
) -> None:
    """Shows the lines of all logs, with who said each before it.

    Raises:
        GantryError: there is no such group, or no log of it.
    """
    found = await sources(api, namespace, wanted)
    if not found:
        why = "has restarted" if wanted.previous else "has begun; see kubectl gantry doctor"
        raise GantryError(f"No container of {wanted.group} in namespace {namespace} {why}.")
    prefixes = Prefixes(found)
    for source, told in await read(api, found, wanted, tell):
        line(prefixes.before(source) + told.text)


async def read(
    api: SupportApi, found: list[LogSource], wanted: LogsWanted, tell: Tell
) -> Iterator[tuple[LogSource, LogLine]]:
    """The lines of all logs in the order of time; a log that cannot be read is told, and left."""
    turn = asyncio.Semaphore(AT_ONCE)
    texts: dict[int, str] = {}

    async def one(number: int, source: LogSource) -> None:
        async with turn:
            try:
                log = await last_bytes(api, source.run, LOG_BYTES, **wanted.query())
            except ApiError as error:
                tell(f"{source.name}: {reason(error)}")
                return
        if log.cut:
            tell(f"{source.name}: the begin is left out, since the log is long")
        texts[number] = log.text

    async with asyncio.TaskGroup() as tasks:
        for number, source in enumerate(found):
            tasks.create_task(one(number, source))
    return merged([(found[number], texts[number]) for number in sorted(texts)])


class LogFollower:
    """Follows logs, also those of pods that come later, until it is cancelled.

    Cancelled, it leaves nothing behind.
    """

    def __init__(self, api: SupportApi, namespace: str, wanted: LogsWanted, tell: Tell) -> None:
        self._api = api
        self._namespace = namespace
        self._wanted = wanted
        self._tell = tell
        self._queue: asyncio.Queue[tuple[LogSource, LogLine]] = asyncio.Queue(QUEUE_MAX)
        self._known: dict[str, LogSource] = {}
        self._open: set[str] = set()
        self._ended: set[str] = set()
        self._last: dict[str, LogLine] = {}

    async def run(self, show: Callable[[str], None]) -> None:
        """Shows each line, with who said it before it.

        Raises:
            GantryError: there is no such group, or it has too many logs.
        """
        prefixes = Prefixes(await self._sources())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look(tasks, prefixes))
            while True:
                batch = [await self._queue.get()]
                await asyncio.sleep(HOLD_S)
                while not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                for source, line in sorted(batch, key=lambda pair: pair[1].at_ns):
                    now = self._known.get(source.key, source)  # its role may have changed
                    show(prefixes.before(now) + line.text)

    async def _look(self, tasks: asyncio.TaskGroup, prefixes: Prefixes) -> None:
        is_first = True
        while True:
            try:
                found = await self._sources()
            except GantryError as error:
                self._tell(str(error))
                found = []
            else:
                self._keep(found)
            prefixes.widen(found)
            for source in found:
                if source.key not in self._open | self._ended:
                    self._open.add(source.key)
                    tasks.create_task(self._follow(source, is_first=is_first))
            is_first = False
            await asyncio.sleep(LOOK_S)

    def _keep(self, found: list[LogSource]) -> None:
        """Forgets runs that are no more."""
        self._known = {source.key: source for source in found}
        self._ended &= self._known.keys()
        self._last = {
            key: line for key, line in self._last.items() if key in self._known.keys() | self._open
        }

    async def _sources(self) -> list[LogSource]:
        found = await sources(self._api, self._namespace, self._wanted)
        if len(found) > FOLLOWED_MAX:
            raise GantryError(
                f"{len(found)} logs are too many to follow, {FOLLOWED_MAX} at most: "
                "follow one group, without --all."
            )
        return found

    async def _follow(self, source: LogSource, *, is_first: bool) -> None:
        """One log, to its end or until the connection is lost; the next look opens it again."""
        last = self._last.get(source.key)
        if last is not None and last.stamp:
            query = {"sinceTime": last.stamp}
        else:
            query = self._wanted.query() if is_first else {"tailLines": str(TAIL_LINES)}
        chunks = self._api.read_log(
            source.run.namespace, source.run.pod, source.run.query(follow="true", **query)
        )
        try:
            rest = ""
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            async for chunk in chunks:
                *whole, rest = (rest + decoder.decode(chunk)).split("\n")
                if len(rest) > LINE_BYTES_MAX:
                    whole, rest = [*whole, rest], ""
                for text in whole:
                    await self._put(source, text, last)
            if rest:
                await self._put(source, rest, last)
            self._ended.add(source.key)
        except ApiError as error:
            self._tell(f"{source.name}: {reason(error)}")
        finally:
            self._open.discard(source.key)
            await chunks.aclose()

    async def _put(self, source: LogSource, text: str, seen: LogLine | None) -> None:
        """A line, unless it was there before the connection was lost."""
        before = self._last.get(source.key)
        line = parsed(text, before.at_ns if before is not None else 0)
        if seen is not None and line.at_ns <= seen.at_ns:
            return
        self._last[source.key] = line
        await self._queue.put((source, line))
