"""Checks of a group itself: conditions, pods, nodes, volumes, budget, replicas, tier; pure."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Final

from gantry_operator import names
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    BUDGET,
    CERTIFICATE,
    CLAIM,
    CONTROLLER_GROUP,
    EVENT,
    FRONT_GROUP,
    NODE,
    POD,
    STATEFULSET,
)
from gantry_operator.plan.crashes import crash_loop
from gantry_operator.plan.objects import is_larger
from gantry_operator.plan.observed import pod_view, volume_view
from gantry_operator.plan.workload import fenced_in
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

PATIENCE: Final = dt.timedelta(minutes=5)
"""So long a deletion, a start or a step may take before it counts as stuck."""
TIER_LAG_S: Final = 300
SOON: Final = dt.timedelta(days=7)
ZONE: Final = "topology.kubernetes.io/zone"
_WARNING_CONDITIONS: Final = ("Altered", "Fenced", "QueuesMoving")
_BAD_CONDITIONS: Final = ("DiskFull", "LogDamaged")
_NO_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_NO_CONFIG: Final = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)


def conditions(case: Case) -> Iterator[Diagnosis]:
    """The operator's own judgement."""
    ready = case.condition("Ready")
    message = str(ready.get("message") or "")
    since = case.age(ready.get("lastTransitionTime"))
    if not ready:
        yield fail("conditions", f"{case.called} has no status.", "See the check operator.")
    elif ready["status"] == "True":
        yield ok("conditions", f"{case.called}: {case.status.get('summary') or 'Ready'}.")
    elif case.is_so("Stalled") or since > 2 * PATIENCE:
        text = f"{case.called} is not Ready for {told(since)}, {ready.get('reason')}: {message}"
        yield fail(
            "conditions", text, f"docs/reasons.md says what to do about {ready.get('reason')}."
        )
    else:
        text = f"{case.called} is not Ready yet, {ready.get('reason')}: {message}"
        yield warn("conditions", text, "Wait; kubectl gantry status tells what is under way.")
    for name in _BAD_CONDITIONS:
        if case.is_so(name):
            text = f"{case.called}: {case.condition(name).get('message')}"
            yield fail("conditions", text, f"See docs/runbooks.md, Gantry{name}.")
    for name in _WARNING_CONDITIONS:
        if case.is_so(name):
            text = f"{case.called}: {case.condition(name).get('message')}"
            yield warn("conditions", text, "Nothing, if that is meant.")
    if case.spec.get("paused"):
        text = f"{case.called} is paused: the operator changes nothing of it."
        yield warn("conditions", text, "Set spec.paused to false when you are done.")


def deletions(case: Case) -> Iterator[Diagnosis]:
    """Deletions that do not end."""
    stuck: list[Diagnosis] = []
    bodies = [
        case.body,
        *case.pods(),
        *case.claims(),
        *case.labeled(STATEFULSET),
    ]
    for body in bodies:
        meta = body["metadata"]
        since = case.age(meta.get("deletionTimestamp"))
        if not meta.get("deletionTimestamp") or since < PATIENCE:
            continue
        what = f"{body.get('kind') or case.kind.kind} {meta['name']}"
        holds = meta.get("finalizers") or []
        text = f"{what} is being deleted for {told(since)}"
        text += f", held by {listed(holds)}." if holds else "; its node may be lost."
        stuck.append(fail("deletions", text, _deletion_todo(case, body)))
    yield from stuck or [ok("deletions", f"Nothing of {case.called} is stuck in its deletion.")]


def _deletion_todo(case: Case, body: Body) -> str:
    holds = body["metadata"].get("finalizers") or []
    if names.DRAIN_FINALIZER in holds:
        return "See its status.drain; spec.drain.deadlineSeconds: 0 gives up what is not consumed."
    if names.QUORUM_FINALIZER in holds:
        return "Delete the BrokerGroups and FrontGroups that refer to it first."
    if names.FINALIZER in holds or names.FRONTS_FINALIZER in holds:
        return "The controllers have to answer: see the check quorum."
    if "kubernetes.io/pvc-protection" in holds:
        return "It goes when no pod uses it any more."
    if body.get("kind") == POD.kind:
        return "If its node is gone for good, taint it node.kubernetes.io/out-of-service."
    return f"Find out who sets these finalizers; {case.called} waits for them."


def pods(case: Case) -> Iterator[Diagnosis]:
    """Pods that do not start, crash, or are not there."""
    if case.material.denied(POD):
        return
    found = case.pods()
    if case.asleep:
        text = f"{case.called} is to sleep; it has {len(found)} pods."
        yield ok("pods", text) if not found else warn("pods", text, "Wait until they have ended.")
        return
    bad: list[Diagnosis] = []
    crashes = crash_loop([pod_view(body) for body in found], case.now)
    if crashes:
        bad.append(
            fail("pods", crashes, "Mend what it says; kubectl gantry logs --previous has more.")
        )
    bad += [one for body in found for one in _pod(case, body, crashes=crashes)]
    wished = _wished_pods(case)
    if len(found) < wished and not bad:
        text = f"{case.called} has {len(found)} of {wished} pods{_last_warning(case)}."
        bad.append(fail("pods", text, f"kubectl describe {case.short}, and its StatefulSet."))
    restarted = [name for body in found if (name := _restarted(case, body))]
    if restarted and not crashes:
        text = f"Containers were restarted within the hour: {listed(restarted)}."
        bad.append(warn("pods", text, "kubectl gantry logs --previous tells how they ended."))
    images = Counter(image for body in found for image in _images(body))
    if len(images) > 1:
        text = f"Pods of {case.called} run {listed(sorted(images))}."
        bad.append(warn("pods", text, "Wait for the rolling update, or see what it waits for."))
    yield from bad or [ok("pods", f"{len(found)} of {wished} pods of {case.called} are Ready.")]


def _wished_pods(case: Case) -> int:
    if case.kind == FRONT_GROUP and (case.spec.get("autoscaling") or {}).get("enabled"):
        return int(case.spec["autoscaling"].get("minReplicas") or 1)
    return case.replicas


def _pod(case: Case, body: Body, *, crashes: str) -> Iterator[Diagnosis]:
    name, status = body["metadata"]["name"], body.get("status") or {}
    describe = f"kubectl -n {case.material.namespace} describe pod {name}"
    states = {one.get("type"): one for one in status.get("conditions") or ()}
    scheduled = states.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        todo = "Make room: nodes, spec.template's selectors and tolerations, or the volume's zone."
        yield fail("pods", f"{name} has no node: {scheduled.get('message')}", todo)
        return
    parts = ("initContainerStatuses", "containerStatuses")
    for one in (container for part in parts for container in status.get(part) or ()):
        waiting = (one.get("state") or {}).get("waiting") or {}
        reason, words = waiting.get("reason"), waiting.get("message") or ""
        if reason in _NO_IMAGE:
            text = f"{name} does not get the image {one.get('image')}: {reason} {words}".strip()
            yield fail("pods", text, "Mend spec.image, or spec.template's imagePullSecrets.")
            return
        if reason in _NO_CONFIG:
            text = f"Container {one.get('name')} of {name} cannot be made: {reason} {words}".strip()
            yield fail("pods", text, "A Secret or ConfigMap that it names may be missing.")
            return
    ready = states.get("Ready") or {}
    if ready.get("status") == "True" or body["metadata"].get("deletionTimestamp") or crashes:
        return
    if case.kind == BROKER_GROUP and names.ordinal(name) in fenced_in(case.body):
        return  # told by the check conditions
    since = case.age(ready.get("lastTransitionTime") or body["metadata"].get("creationTimestamp"))
    text = f"{name} is not Ready for {told(since)}{_last_warning(case, name)}."
    yield (fail if since > PATIENCE else warn)("pods", text, describe)


def _last_warning(case: Case, pod: str = "") -> str:
    """The newest warning about a pod, or about any of the group."""
    found = [
        event
        for event in case.material.of(EVENT)
        if event.get("type") == "Warning"
        and case.age(event.get("lastTimestamp") or event.get("eventTime")) < RECENT
        and _is_about(event, pod, case)
    ]
    found.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return f" ({found[-1].get('reason')}: {found[-1].get('message')})" if found else ""


def _is_about(event: Body, pod: str, case: Case) -> bool:
    about = str((event.get("involvedObject") or {}).get("name") or "")
    return about == pod if pod else about.startswith(f"{case.name}-")


def _restarted(case: Case, body: Body) -> str:
    for one in (body.get("status") or {}).get("containerStatuses") or ():
        ended = (one.get("lastState") or {}).get("terminated") or {}
        if ended and case.age(ended.get("finishedAt")) < RECENT:
            why = ended.get("reason") or f"code {ended.get('exitCode')}"
            return f"{body['metadata']['name']}/{one.get('name')} ({why})"
    return ""


def _images(body: Body) -> Iterator[str]:
    for one in (body.get("spec") or {}).get("containers") or ():
        if one.get("name") in (names.BROKER, names.CONTROLLER, names.FRONT):
            yield str(one.get("image"))


def spread(case: Case) -> Iterator[Diagnosis]:
    """Pods on as many nodes and zones as there are."""
    placed = {
        body["metadata"]["name"]: node
        for body in case.pods()
        if (node := (body.get("spec") or {}).get("nodeName"))
    }
    if len(placed) < 2:
        return
    on = Counter(placed.values())
    nodes = {body["metadata"]["name"]: body for body in case.material.of(NODE)}
    node, most = on.most_common(1)[0]
    majority = case.kind == CONTROLLER_GROUP and 2 * most > case.replicas
    if most > 1 and len(nodes) == 1:
        yield warn("spread", f"All pods of {case.called} share the one node {node}.", "Add nodes.")
        return
    if most > 1:
        text = f"{most} of {len(placed)} pods of {case.called} are on {node}"
        text += ": with it the quorum is lost." if majority else "."
        todo = (
            "Make room on other nodes; spec.template.spec.topologySpreadConstraints insists on it."
        )
        yield (fail if majority and len(nodes) >= case.replicas else warn)("spread", text, todo)
        return
    zones = {_zone(nodes[one]) for one in on if one in nodes}
    there = {_zone(body) for body in nodes.values()} - {""}
    if len(there) > 1 and len(zones) == 1:
        text = f"All pods of {case.called} are in the zone {zones.pop()}, of {len(there)}."
        yield warn("spread", text, "spec.template.spec.topologySpreadConstraints spreads them.")
        return
    yield ok("spread", f"{len(placed)} pods of {case.called} are on {len(on)} nodes.")


def _zone(node: Body) -> str:
    return str((node["metadata"].get("labels") or {}).get(ZONE) or "")


def volumes(case: Case) -> Iterator[Diagnosis]:
    """Volumes that are not bound, not as large as wished, or going."""
    storage = case.spec.get("storage") or {}
    if case.kind == FRONT_GROUP or case.material.denied(CLAIM):
        return
    if storage.get("type") == "EmptyDir":
        text = f"{case.called} has no volumes: what a pod holds goes with the pod."
        yield warn("volumes", text, "Nothing, for trying things out; else make a new group.")
        return
    size = str(storage.get("size") or "")
    claims = case.claims()
    bad = [one for body in claims for one in _claim(case, body, size)]
    named = {body["metadata"]["name"] for body in claims}
    lacking = sorted(
        name
        for pod in case.pods()
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if (name := (volume.get("persistentVolumeClaim") or {}).get("claimName"))
        and name.startswith("data-")
        and name not in named
    )
    if lacking:
        text = f"Claims are gone while pods use them: {listed(lacking)}."
        bad.append(fail("volumes", text, "Keep the pods, and see docs/failure-modes.md."))
    yield from bad or [ok("volumes", f"{len(claims)} volumes of {case.called} are bound.")]


def _claim(case: Case, body: Body, size: str) -> Iterator[Diagnosis]:
    view = volume_view(body)
    phase = (body.get("status") or {}).get("phase")
    if phase == "Lost":
        todo = "Its PersistentVolume is gone: delete claim and pod, and the replica is filled anew."
        yield fail("volumes", f"The volume of {view.name} is lost.", todo)
    elif not view.bound:
        since = case.age(body["metadata"].get("creationTimestamp"))
        todo = f"kubectl -n {case.material.namespace} describe pvc {view.name}"
        text = f"{view.name} has no volume for {told(since)}{_last_warning(case, view.name)}."
        yield (fail if since > PATIENCE else warn)("volumes", text, todo)
    elif view.trouble:
        text = f"{view.name} does not become larger: {view.trouble}"
        yield warn("volumes", text, "docs/changes.md, larger volumes, says what can be done.")
    elif size and view.capacity and is_larger(size, view.capacity):
        text = f"{view.name} has {view.capacity}, and {size} is wished."
        yield warn("volumes", text, "Wait while volumes grow; see the conditions.")


def budget(case: Case) -> Iterator[Diagnosis]:
    """The budget for evictions."""
    if case.material.denied(BUDGET) or case.asleep:
        return
    found = case.labeled(BUDGET)
    if not found:
        text = f"{case.called} has no PodDisruptionBudget."
        yield warn("budget", text, "The operator makes one: see the check operator.")
        return
    status = found[0].get("status") or {}
    allowed, healthy = status.get("disruptionsAllowed"), status.get("currentHealthy") or 0
    if allowed == 0 and healthy >= case.replicas:
        text = f"Every pod of {case.called} is well, and none may be evicted: drains of nodes wait."
        yield warn("budget", text, f"kubectl describe pdb {found[0]['metadata']['name']}")
    elif allowed == 0:
        text = (
            f"No pod of {case.called} may be evicted while {healthy} of {case.replicas} are well."
        )
        yield ok("budget", text)
    else:
        yield ok("budget", f"{allowed or 1} pod of {case.called} may be evicted.")


def replicas(case: Case) -> Iterator[Diagnosis]:
    """Replicas in sync against those that a send needs."""
    if case.kind != BROKER_GROUP or case.asleep:
        return
    shards = case.status.get("shards")
    if shards is not None:
        yield from _shards(case, shards)
        return
    fenced = [ordinal for ordinal in fenced_in(case.body) if ordinal < case.replicas]
    wished = case.replicas - len(fenced)
    wish = (case.spec.get("replication") or {}).get("minInSyncReplicas")
    minimum = int(wish or min(2, case.replicas))
    in_sync = list(case.status.get("inSyncReplicas") or ())
    master = case.status.get("master") or {}
    if not master:
        why = case.condition("Available").get("message") or ""
        text = f"{case.called} has no master: nobody is served. {why}".strip()
        yield fail("replicas", text, "docs/runbooks.md, GantryGroupWithoutMaster.")
        return
    behind = [
        f"replica {one.get('replica')} {one.get('state')}"
        for one in case.status.get("members") or ()
        if one.get("state") in ("CatchingUp", "Lost", "Draining")
    ]
    tail = f" ({listed(behind)})" if behind else ""
    text = f"{len(in_sync)} of {wished} replicas are in sync, {minimum} are needed{tail}."
    if len(in_sync) < minimum:
        yield fail(
            "replicas", f"Sends are refused: {text}", "docs/runbooks.md, GantrySendsRefused."
        )
    elif len(in_sync) < wished:
        yield warn("replicas", text, "See the check pods; a replica that is back catches up.")
    elif minimum == wished and wished > 1:
        todo = "Set replication.minInSyncReplicas to less than replicas."
        yield warn("replicas", f"{text} Each restart of a replica makes sends wait.", todo)
    elif wished == 1:
        text = f"{case.called} has one replica: its volume is the only copy."
        yield warn("replicas", text, "Nothing, if that is meant; else set replicas to 3.")
    else:
        yield ok(
            "replicas", f"{text} {master.get('pod')} is master at epoch {master.get('epoch')}."
        )


def _shards(case: Case, shards: Body) -> Iterator[Diagnosis]:
    worst = shards.get("worst")
    if worst:
        text = (
            f"{shards.get('ready')} shards are Ready; {worst.get('name')}: {worst.get('message')}"
        )
        yield fail("replicas", text, f"docs/reasons.md, {worst.get('reason')}.")
    else:
        yield ok("replicas", f"{shards.get('ready')} shards of {case.called} are Ready.")


def tier(case: Case) -> Iterator[Diagnosis]:
    """Uploads to the tier."""
    if case.kind != BROKER_GROUP or not case.spec.get("tier") or case.asleep:
        return
    health, status = case.condition("TierHealthy"), case.status.get("tier") or {}
    lag = status.get("lagSeconds")
    if health.get("status") == "False":
        halted = health.get("reason") == "Halted"
        text = f"The tier of {case.called}, {health.get('reason')}: {health.get('message')}"
        todo = f"docs/reasons.md, {health.get('reason')}; the log keeps what is not uploaded."
        yield (fail if halted else warn)("tier", text, todo)
    elif lag is None:
        yield warn("tier", f"How far the tier of {case.called} is, is not known.", "Wait a minute.")
    elif lag > TIER_LAG_S:
        text = f"The tier of {case.called} is {lag} s behind."
        yield warn("tier", text, "docs/runbooks.md, GantryTierLagGrows.")
    else:
        yield ok("tier", f"The tier of {case.called} is {lag} s behind.")


def quorum(case: Case) -> Iterator[Diagnosis]:
    """The quorum leads, has a majority, and members to spare."""
    if case.kind != CONTROLLER_GROUP:
        return
    wished = case.replicas
    ready = sum(pod_view(body).ready for body in case.pods())
    need = wished // 2 + 1
    leader = case.status.get("leader") or {}
    text = f"{ready} of {wished} controllers are Ready, {need} are needed"
    if case.material.denied(POD):
        return
    if ready < need or not leader:
        who = "" if leader else "; nobody leads"
        yield fail("quorum", f"{text}{who}.", "docs/runbooks.md, GantryControllersWithoutLeader.")
    elif wished == 1:
        text = "The quorum is one controller: while it is away no master is elected."
        yield warn("quorum", text, "Nothing, for trying things out; else make one of 3.")
    elif ready < wished:
        yield warn("quorum", f"{text}.", "docs/runbooks.md, GantryControllerDown.")
    else:
        yield ok("quorum", f"{text}; {leader.get('pod')} leads at term {leader.get('term')}.")


def certificates(case: Case) -> Iterator[Diagnosis]:
    """Certificates that end soon, where cert-manager tells."""
    secrets = sorted(
        name
        for key in ("tls", "memberTls")
        if (name := (case.spec.get(key) or {}).get("secretName"))
    )
    if not secrets:
        return
    known = {
        (body.get("spec") or {}).get("secretName"): body for body in case.material.of(CERTIFICATE)
    }
    for secret in secrets:
        ends = moment(((known.get(secret) or {}).get("status") or {}).get("notAfter"))
        if ends is None:
            text = f"When the certificate in {secret} ends is not seen here: Secrets are not read."
            yield ok("certificates", f"{text} The alert GantryCertificateExpires watches it.")
        elif ends <= case.now:
            text = f"The certificate in {secret} has ended {told(case.now - ends)} ago."
            yield fail("certificates", text, "docs/runbooks.md, GantryCertificateExpires.")
        elif ends - case.now < SOON:
            text = f"The certificate in {secret} ends in {told(ends - case.now)}."
            yield warn("certificates", text, "docs/runbooks.md, GantryCertificateExpires.")
        else:
            yield ok(
                "certificates", f"The certificate in {secret} ends in {told(ends - case.now)}."
            )


CHECKS: Final = (
    conditions,
    deletions,
    pods,
    spread,
    volumes,
    budget,
    replicas,
    quorum,
    tier,
    certificates,
)
