"""A broker group by the store's listing and the chain, before a pack is opened.

Read here, judged by the protocol. Nothing here repairs, deletes or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.tier import keys
from gantry_protocol.tier.findings import stray
from gantry_protocol.tier.judgement import Judgement

from gantry_pipeline.source import chain
from gantry_pipeline.source.objects import MissingObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_protocol.tier.findings import Finding

    from gantry_pipeline.source.objects import Objects


def inspect(objects: Objects, place: keys.Shard) -> Judgement:
    """Meta, chain and listing of one broker group.

    Raises:
        StoreError: the store did not answer.
    """
    judgement = Judgement(place)
    try:
        judgement.owner(objects.get(place.key(keys.MetaKey())))
    except MissingObject:
        judgement.owner(None)
    for batch in chain.attempts(objects, chain.begin(place)):
        judgement.versions(batch)
    judgement.objects(objects.keys(place.prefix))
    return judgement


def strays(objects: Objects, *, cluster: str = "") -> Iterator[Finding]:
    """Folders where a broker group's should be, and that are none."""
    for prefix, place in chain.folders(objects, cluster=cluster):
        if place is None:
            yield stray(prefix)
