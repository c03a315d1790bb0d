"""Posting events, each once.

An event's name is a digest of what it says about which version of whom. Posting it again meets the
first one, so a repeated reconcile, a restart of the operator or a second replica cannot repeat it
while the API server keeps it (one hour by default). Losing an event loses nothing but words.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.process import log

from gantry_operator import names
from gantry_operator.api.errors import AlreadyExists, ApiError, Ending
from gantry_operator.api.kinds import BY_NAME, EVENT
from gantry_operator.builders.meta import digest
from gantry_operator.plan.conditions import timestamp

if TYPE_CHECKING:
    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Key
    from gantry_operator.models.base import Metadata
    from gantry_operator.plan.actions import EmitEvent

MAX_NOTE = 1000
_log = log.get("events")


async def post_event(api: Api, key: Key, meta: Metadata, event: EmitEvent) -> None:
    """Posts an event about a resource; a failure is logged and that is all."""
    now = timestamp(dt.datetime.now(dt.UTC))
    kind = BY_NAME[key.kind]
    identity = digest([meta.uid, meta.generation, event.type, event.reason, event.note])
    body = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{key.name}.{identity}", "namespace": key.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": meta.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.note[:MAX_NOTE],
        "source": {"component": names.MANAGED_BY},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.create(EVENT, body)
    except (AlreadyExists, Ending):
        return
    except ApiError as error:
        _log.warning("event not posted", name=key.name, reason=event.reason, error=error)
