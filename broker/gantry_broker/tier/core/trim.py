"""The offset up to which a broker may delete its own log once the tier holds it.

Rule protected (T10): ``new start <= committed end of the tier``, and ``<=`` every pin (a replica
that is about to fetch from there). Bytes that only this disk and its peers hold are never deleted
for lack of room. A broker that is fenced or halted, or has not compared its log with the chain
yet, has no committed end to go by and deletes nothing.
"""

from collections.abc import Iterable

from gantry_protocol.types import Offset


def trim_bound(
    *,
    committed_end: Offset | None,
    local_start: Offset,
    retained_from: Offset,
    pins: Iterable[Offset] = (),
) -> Offset:
    """The offset below which the local log may be deleted; ``local_start`` when nothing may.

    Args:
        committed_end: ``UploadRole.end_for_trim``.
        local_start: where the log starts now.
        retained_from: the local retention keeps everything from here on.
        pins: offsets from which somebody was promised the log.
    """
    if committed_end is None:
        return local_start
    return max(local_start, min(committed_end, retained_from, *pins))
