"""Logs of containers, read to their end and kept by their last bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_operator.support.bundle import LogText

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Body, SupportApi

TAIL_LINES: Final = 20_000
READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one log, whatever is kept of it: its lines may be long."""


class ContainerRun(msgspec.Struct, frozen=True, order=True):
    """A run of a container, of which there may be a log.

    Attributes:
        previous: the one before the present one.
    """

    namespace: str
    pod: str
    container: str
    previous: bool = False

    def __str__(self) -> str:
        """As in a list of what was read."""
        which = "previous log" if self.previous else "log"
        return f"{which} of {self.namespace}/{self.pod}, container {self.container}"

    def query(self, **more: str) -> dict[str, str]:
        """As the API server wants to be asked."""
        asked = {"container": self.container, "timestamps": "true", **more}
        return asked | {"previous": "true"} if self.previous else asked


def runs_of(pod: Body) -> list[ContainerRun]:
    """The runs of a pod that have logs: present ones, and those before a restart."""
    meta, status = pod["metadata"], pod.get("status") or {}
    found: list[ContainerRun] = []
    for part in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(part) or ():
            run = ContainerRun(meta["namespace"], meta["name"], one["name"])
            if _has_begun(one):
                found.append(run)
            if (one.get("lastState") or {}).get("terminated"):
                found.append(msgspec.structs.replace(run, previous=True))
    return found


def _has_begun(status: dict[str, Any]) -> bool:
    state = status.get("state") or {}
    return "running" in state or "terminated" in state or bool(status.get("restartCount"))


async def last_bytes(api: SupportApi, run: ContainerRun, bytes_max: int, **query: str) -> LogText:
    """The end of a log, from the begin of a line on.

    Args:
        api: with a person's rights.
        run: whose log.
        bytes_max: so much of it is kept.
        query: what else to ask for, instead of the last lines.

    Raises:
        ApiError: it cannot be read.
    """
    kept = bytearray()
    count, cut = 0, False
    chunks = api.read_log(
        run.namespace, run.pod, run.query(**(query or {"tailLines": str(TAIL_LINES)}))
    )
    try:
        async for chunk in chunks:
            count += len(chunk)
            kept += chunk
            if len(kept) > 2 * bytes_max:
                del kept[: len(kept) - bytes_max]
                cut = True
            if count >= READ_BYTES_MAX:
                cut = True
                break
    finally:
        await chunks.aclose()
    if len(kept) > bytes_max:
        del kept[: len(kept) - bytes_max]
        cut = True
    if cut:  # a part of a line could be the end of a secret whose name is not here any more
        del kept[: kept.find(b"\n") + 1 or len(kept)]
    cut = cut or kept.count(b"\n") >= TAIL_LINES
    text = kept.decode("utf-8", "replace")
    return LogText(run.namespace, run.pod, run.container, run.previous, text, cut)
