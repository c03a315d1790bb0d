"""Waiting for custom resource definitions that know all that this version reads and writes.

Helm changes no definition that exists, so an upgrade may forget them. A definition without a field
loses it from every object that is read, and refuses every status that has it: what the operator
has noted in a status (the image of a group, a reset that was done) would seem never to have been.
So it waits, and is not Ready: the operator of before goes on until the definitions are there. An
operator that was overtaken by older ones ends, and waits likewise when it is started again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import Denied, NotFound
from gantry_operator.api.kinds import CUSTOM
from gantry_operator.models.generate import KINDS
from gantry_operator.models.schema import model_paths, paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_operator.api.kube import KubeApi
    from gantry_operator.api.protocol import Body

LOOK_AGAIN_S: Final = 2.0
TOLD_MAX: Final = 8
"""So many fields are named; one is enough to see what is to be done."""
_log = log.get("server")


async def wait_for_definitions(api: KubeApi) -> None:
    """Returns once every kind is served, with all fields. Raises `ApiError`."""
    told: list[str] = []
    while lacking := await _lacking(api):
        if lacking != told:
            some = lacking[:TOLD_MAX]
            _log.warning(
                "the custom resource definitions are older than this operator, or not there; apply "
                f"the files in crds/: {names.APPLY_DEFINITIONS}",
                missing=",".join(some)
                + (f" and {len(lacking) - TOLD_MAX} more" * (some != lacking)),
            )
            told = lacking
        await asyncio.sleep(LOOK_AGAIN_S)


async def _lacking(api: KubeApi) -> list[str]:
    kinds = [f"{kind.plural}.{names.GROUP}" for kind in CUSTOM if not await api.is_served(kind)]
    if kinds:
        return kinds
    try:
        return lacking_fields(await api.schemas(names.GROUP, names.VERSION))
    except (Denied, NotFound) as error:
        _log.warning("whether the definitions are of this version cannot be read", error=error)
        return []


def lacking_fields(served: Mapping[str, Body]) -> list[str]:
    """Fields of this version that the API server's definitions do not have.

    Args:
        served: schemas by kind. A kind that is not among them is not published yet, and lacks all.

    Returns:
        `Kind.path`, with dots and without the indices of lists, sorted.
    """
    return sorted(
        f"{name}.{path}"
        for name, model in ((kind.model.__name__, kind.model) for kind in KINDS)
        for path in model_paths(model) - paths(served.get(name, {}))
        if path.partition(".")[0] in ("spec", "status")
    )
