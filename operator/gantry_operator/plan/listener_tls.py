"""TLS of single listeners: whether their certificates serve, and where their Services lead.

The operator reads the Secrets of listeners by name (`reconcile.certificates`) and says what is
wrong with one; it holds no step back for it, since pods start without the certificate and take it
when it comes. Clients of other ways in notice nothing.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.tls.validity import not_after

from gantry_operator import names
from gantry_operator.builders.listeners import SHARED_PORTS
from gantry_operator.plan.observed import CertificateView
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gantry_operator.models import BrokerGroup
    from gantry_operator.models.listeners import ListenerWish
    from gantry_operator.plan.observed import Body, BrokerObserved
    from gantry_operator.plan.workload import Workload

LOOK_S = 60.0
"""How often certificates are looked at; a kubelet takes about as long to bring a changed Secret."""
_CERT, _KEY = "tls.crt", "tls.key"
_ADVICE = {
    "Missing": "create it, of the type kubernetes.io/tls",
    "Unusable": "put a certificate and its own key in PEM there",
}


def secrets_of(listeners: Iterable[ListenerWish]) -> tuple[str, ...]:
    """Names of the Secrets of listeners with a certificate of their own."""
    named = (
        one.tls.secret_name
        for one in listeners
        if one.tls is not None and one.tls.mode != "Disabled"
    )
    return tuple(sorted({name for name in named if name is not None}))


def judged(
    secret: str, data: Mapping[str, str], fault_of: Callable[[bytes, bytes], str | None]
) -> CertificateView:
    """The judgement of a Secret that exists; the key is not kept.

    Args:
        secret: its name.
        data: its entries in base64.
        fault_of: what keeps a certificate and a private key from serving together, for people;
            None: nothing that is known.
    """
    try:
        cert, key = (base64.b64decode(data[name], validate=True) for name in (_CERT, _KEY))
        ends = not_after(cert.decode("ascii"))
    except KeyError as error:
        return CertificateView(secret, "Unusable", f"it has no {error.args[0]}")
    except binascii.Error:
        return CertificateView(secret, "Unusable", "its entries are no base64")
    except UnicodeDecodeError:
        return CertificateView(secret, "Unusable", f"its {_CERT} holds no certificate in PEM")
    except ValueError as error:
        text = str(error).removeprefix("it ").removeprefix("its certificate ")
        return CertificateView(secret, "Unusable", f"its {_CERT} {text}")
    if b"PRIVATE KEY-----" not in key:
        return CertificateView(secret, "Unusable", f"its {_KEY} holds no private key in PEM")
    if (fault := fault_of(cert, key)) is not None:
        return CertificateView(secret, "Unusable", fault)
    return CertificateView(secret, "Read", ends=int(ends.timestamp()))


def certificate_problem(
    listeners: Sequence[ListenerWish], certificates: Sequence[CertificateView], now: dt.datetime
) -> tuple[Reason, str] | None:
    """The fault of the first listener whose certificate has one, for people; None: all are well.

    What could not be read is no problem: nothing is known of it.
    """
    known = {one.secret: one for one in certificates}
    for listener in listeners:
        if listener.tls is None or listener.tls.mode == "Disabled":
            continue
        found = known.get(listener.tls.secret_name or "")
        text = None if found is None else _fault(found, now)
        if text is not None:
            return Reason.CERTIFICATE_UNUSABLE, f"Listener {listener.name}: {text}"
    return None


def _fault(found: CertificateView, now: dt.datetime) -> str | None:
    secret = f"Secret {found.secret}"
    if found.state == "Missing":
        return (
            f"{secret} does not exist, so nobody connects by TLS: {_ADVICE[found.state]}; no pod "
            "restarts for it."
        )
    if found.state == "Unusable":
        return (
            f"{secret} is no good, {found.text}: {_ADVICE[found.state]}; pods show the last good "
            "certificate that they had."
        )
    if found.state == "Read" and found.ends <= now.timestamp():
        ended = dt.datetime.fromtimestamp(found.ends, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            f"the certificate in {secret} ended at {ended}, so clients that verify it do not "
            "connect: put a new one there; no pod restarts for it."
        )
    return None


def shared_listeners(
    seen: BrokerObserved, group: BrokerGroup, load: Workload | None
) -> frozenset[str]:
    """Listeners whose Services lead to the ports of all clients until every pod has their own.

    Rule: a listener that gets TLS of its own serves as before until the change is carried out, as
    all of a group does that gets TLS. One that is new never leads anywhere else than to its own
    port, so nobody is served there otherwise than its owner wishes.
    """
    if load is None:
        return frozenset()
    current = load.revision is not None and not load.outdated()
    workload = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    there = _port_names(workload or {})
    shards = group.spec.shards is not None
    return frozenset(
        listener.name
        for listener in group.spec.clients.listeners
        if listener.tls is not None
        and _target(seen, listener.name) in SHARED_PORTS
        and not (current and _first_port(listener.name, shards=shards) in there)
    )


def _first_port(listener: str, *, shards: bool) -> str:
    """The listener's own port of a pod, or its first; the template has all of them, or none."""
    if shards:
        return names.shard_listener_port(listener, 0)
    return names.listener_port(listener)


def _target(seen: BrokerObserved, listener: str) -> object:
    """The port that the Service of a listener leads to now; None for none that is there.

    Of shards it is that of the first. All lead to the listener's own ports, or none does.
    """
    service = names.listener_service(seen.meta.name, listener)
    live = seen.objects.get(("Service", service)) or {}
    ports: list[Body] = (live.get("spec") or {}).get("ports") or []
    return ports[0].get("targetPort") if ports else None


def _port_names(workload: Body) -> set[str]:
    template = (workload.get("spec") or {}).get("template") or {}
    return {
        port.get("name", "")
        for container in (template.get("spec") or {}).get("containers") or ()
        for port in container.get("ports") or ()
    }
