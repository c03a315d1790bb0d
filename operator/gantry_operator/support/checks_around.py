"""Checks of what is around a group: API server, CRDs, operator, webhooks, quotas, rights; pure.

A check says something in any case: what could not be read is not well, and is not ill either.
"""

from __future__ import annotations

import datetime as dt
import functools
from typing import TYPE_CHECKING, Any, Final

from gantry_operator import lease, names
from gantry_operator.api.kinds import (
    CRD,
    CUSTOM,
    DEPLOYMENT,
    EVENT,
    LEASE,
    MUTATING,
    POD,
    QUOTA,
    VALIDATING,
)
from gantry_operator.models.generate import manifests
from gantry_operator.models.schema import paths
from gantry_operator.plan.objects import is_larger
from gantry_operator.support.findings import (
    RECENT,
    Case,
    Diagnosis,
    fail,
    listed,
    moment,
    ok,
    told,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_operator.api.protocol import Body

STALE_LEASE: Final = dt.timedelta(seconds=4 * lease.DURATION_S)
"""A healthy Lease is renewed every two seconds; the rest is for clocks that differ."""
_JUDGED: Final = {
    names.GROUP: {kind.plural for kind in CUSTOM},
    "": {"pods", "services", "configmaps", "persistentvolumeclaims", "events", "pods/eviction"},
    "apps": {"statefulsets", "deployments"},
    "policy": {"poddisruptionbudgets"},
    "coordination.k8s.io": {"leases"},
}
"""By API group, what a webhook must let through for a group to be served and changed."""
_REFUSED: Final = ("admission webhook", "failed calling webhook")


def server(case: Case) -> Iterator[Diagnosis]:
    """The API server's version, and what of it could not be read."""
    found = case.material.server.get("gitVersion")
    yield (
        ok("server", f"The API server is of version {found}.")
        if found
        else warn("server", "The API server does not tell its version.", "Look at kubectl version.")
    )
    home = f" of namespace {case.material.namespace}"
    missing = [f"{one.what} ({one.why})" for one in case.material.unread]
    here = [f"{one.what} ({one.why})" for one in case.material.unread if one.what.endswith(home)]
    if here:
        text = f"What is not to be read is not judged: {listed(here)}."
        yield warn("rights", text, "Ask for get and list of these, or let somebody look who may.")
    elif missing:
        yield ok("rights", f"What is not to be read is not judged: {listed(missing)}.")
    else:
        yield ok("rights", "All that is looked at can be read.")


def crds(case: Case) -> Iterator[Diagnosis]:
    """The CRDs against those of this version."""
    if case.material.denied(CRD):
        return
    live = {body["metadata"]["name"]: body for body in case.material.of(CRD)}
    bad: list[Diagnosis] = []
    for wished in _manifests():
        bad += _crd(wished, live.get(wished["metadata"]["name"]))
    yield from bad or [ok("crds", f"{len(_manifests())} CRDs are those of this version.")]


@functools.cache
def _manifests() -> list[Body]:
    return list(manifests().values())


def _crd(wished: Body, found: Body | None) -> Iterator[Diagnosis]:
    name = wished["metadata"]["name"]
    apply = f"Apply the CRDs of the operator's version: {names.APPLY_DEFINITIONS}"
    if found is None:
        yield fail("crds", f"The CRD {name} is not there.", apply)
        return
    if found["metadata"].get("deletionTimestamp"):
        yield fail("crds", f"The CRD {name} is being deleted, and all of its kind with it.", apply)
        return
    for one in (found.get("status") or {}).get("conditions") or ():
        if one.get("type") in ("Established", "NamesAccepted") and one.get("status") == "False":
            yield fail("crds", f"The CRD {name} is not served: {one.get('message')}", apply)
    served = {
        one["name"]: one for one in (found.get("spec") or {}).get("versions") or () if one["served"]
    }
    if names.VERSION not in served:
        yield fail("crds", f"The CRD {name} does not serve {names.VERSION}.", apply)
        return
    ours, theirs = (
        paths((one.get("schema") or {}).get("openAPIV3Schema") or {})
        for one in (wished["spec"]["versions"][0], served[names.VERSION])
    )
    if lacks := sorted(ours - theirs):
        text = f"The CRD {name} lacks fields of this version: {listed(lacks)}."
        until = "Until then they are dropped from manifests, and an operator of this version waits."
        yield warn("crds", text, f"{apply}. {until}")
    if more := sorted(theirs - ours):
        text = f"The CRD {name} has fields that this command does not know: {listed(more)}."
        yield warn("crds", text, "Use the kubectl gantry of the operator's version.")


def operator(case: Case) -> Iterator[Diagnosis]:
    """The operator runs, leads, is heard, and is not refused."""
    yield from _deployment(case)
    yield from _lease(case)
    yield from _has_seen(case)
    refused = [
        one.get("message") or ""
        for one in case.status.get("conditions") or ()
        if one.get("reason") == "ApiRefused"
    ]
    if refused:
        todo = "Read its words: missing rights of the operator, a quota, or a webhook."
        yield fail("operator", f"The API server refuses the operator: {refused[0]}", todo)


def _deployment(case: Case) -> Iterator[Diagnosis]:
    material = case.material
    found = [
        body
        for body in material.objects.get(DEPLOYMENT.kind) or ()
        if (body["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == names.OPERATOR
    ]
    if not found:
        if not material.denied(DEPLOYMENT):
            text = "No Deployment of an operator was found."
            yield warn("operator", text, "Install the chart, or give --operator-namespace.")
        return
    (body, *_) = found
    name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    wished = (body.get("spec") or {}).get("replicas", 1)
    ready = (body.get("status") or {}).get("readyReplicas") or 0
    todo = f"kubectl -n {body['metadata']['namespace']} describe pod -l {names.LABEL_COMPONENT}="
    todo += f"{names.OPERATOR}"
    if not wished:
        yield fail("operator", f"{name} is scaled to 0: nothing is reconciled.", "Scale it to 1.")
    elif not ready:
        yield fail("operator", f"No pod of {name} is Ready{_why(case, body)}.", todo)
    elif ready < wished:
        text = f"{ready} of {wished} pods of {name} are Ready{_why(case, body)}."
        yield warn("operator", text, todo)
    else:
        images = [c.get("image") for c in body["spec"]["template"]["spec"]["containers"]]
        yield ok("operator", f"{name} runs {images[0]}.")


def _why(case: Case, deployment: Body) -> str:
    """The reason that a container of an operator waits for."""
    home = deployment["metadata"]["namespace"]
    for pod in case.material.of(POD, home):
        labels = pod["metadata"].get("labels") or {}
        if labels.get(names.LABEL_COMPONENT) != names.OPERATOR:
            continue
        for one in (pod.get("status") or {}).get("containerStatuses") or ():
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting:
                return f" ({waiting.get('reason')} {waiting.get('message') or ''})".replace(
                    " )", ")"
                )
    return ""


def _lease(case: Case) -> Iterator[Diagnosis]:
    leases = case.material.objects.get(LEASE.kind)
    if leases is None:
        return  # no operator was found, or its Lease cannot be read; both are told
    if not leases:
        text = "The operator has no Lease: none leads."
        yield fail("operator", text, "Look at the operator's log: kubectl logs deploy/…-operator")
        return
    spec = leases[0].get("spec") or {}
    renewed = moment(spec.get("renewTime"))
    holder = spec.get("holderIdentity") or ""
    if not holder or renewed is None or case.now - renewed > STALE_LEASE:
        since = f" for {told(case.now - renewed)}" if renewed is not None else ""
        text = f"No operator has held the Lease{since}: nothing is reconciled."
        yield fail("operator", text, "Look at its pods and its log, and at this machine's clock.")
    else:
        yield ok("operator", f"{holder} leads.")


def _has_seen(case: Case) -> Iterator[Diagnosis]:
    seen = case.status.get("observedGeneration")
    if seen == case.body["metadata"].get("generation"):
        return
    what = "ever seen" if seen is None else "seen the newest spec of"
    text = f"No operator has {what} {case.called}."
    yield fail(
        "operator",
        text,
        "Wait for seconds. If it stays: does an operator run, and is it to look at this namespace "
        "(operator.namespaces and operator.allNamespaces of the chart)?",
    )


def webhooks(case: Case) -> Iterator[Diagnosis]:
    """Webhooks that judge our objects, and whether one has refused some."""
    refusals = [
        *((one.get("message") or "") for one in case.status.get("conditions") or ()),
        *(
            str(event.get("message") or "")
            for event in case.material.of(EVENT)
            if event.get("type") == "Warning" and _age(case, event) < RECENT
        ),
    ]
    for text in refusals:
        if any(words in text for words in _REFUSED):
            todo = "Let it admit what the operator writes, or take our namespace out of its rules."
            yield fail("webhooks", f"A webhook refuses: {text[:300]}", todo)
            return
    if case.material.denied(VALIDATING) or case.material.denied(MUTATING):
        return
    judges = sorted(
        f"{body['metadata']['name']}/{hook.get('name')}"
        for kind in (VALIDATING, MUTATING)
        for body in case.material.of(kind)
        for hook in body.get("webhooks") or ()
        if hook.get("failurePolicy", "Fail") == "Fail" and _judges(hook)
    )
    if judges:
        text = f"While they do not answer, these let nothing of ours through: {listed(judges)}."
        yield ok("webhooks", text)
    else:
        yield ok("webhooks", "No webhook has to answer before our objects are written.")


def _judges(hook: dict[str, Any]) -> bool:
    for rule in hook.get("rules") or ():
        groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
        for group, kinds in _JUDGED.items():
            in_group = "*" in groups or group in groups
            if in_group and any(one in ("*", "*/*") or one in kinds for one in resources):
                return True
    return False


def quota(case: Case) -> Iterator[Diagnosis]:
    """Quotas of the namespace that are used up."""
    if case.material.denied(QUOTA):
        return
    bodies = case.material.of(QUOTA)
    full = [
        f"{body['metadata']['name']}: {key} {used.get(key)} of {hard}"
        for body in bodies
        for used in [(body.get("status") or {}).get("used") or {}]
        for key, hard in ((body.get("status") or {}).get("hard") or {}).items()
        if key in used and not is_larger(hard, used[key])
    ]
    short = [
        str(event.get("message") or "")
        for event in case.material.of(EVENT)
        if "exceeded quota" in str(event.get("message") or "") and _age(case, event) < RECENT
    ]
    todo = "Raise the quota, or wish for less."
    if short:
        yield fail("quota", f"A quota keeps something from being made: {short[-1][:300]}", todo)
    elif full:
        yield warn("quota", f"A quota is used up: {listed(full)}.", todo)
    else:
        count = f"{len(bodies)} quotas have room." if bodies else "The namespace has no quota."
        yield ok("quota", count)


def _age(case: Case, event: Body) -> dt.timedelta:
    return case.age(event.get("lastTimestamp") or event.get("eventTime"))


CHECKS: Final = (server, crds, operator, webhooks, quota)
