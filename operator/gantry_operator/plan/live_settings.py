"""Settings that processes apply while running, and what is known of how far that has come.

The file of a group is a ConfigMap that its pods have mounted; processes read it again. Nothing is
told to them. Kubelets, which renew a pod's files once a minute or two, do so when the pod changes;
so it gets an annotation, once for each file. What counts is the word of the processes: the
fingerprint of the file whose settings they have (`MemberView.settings`, `PeerView.settings`). A
broker that says nothing of it may be older, or its controllers are: with nobody's word there is
nothing to wait for.

The operator asks no front which file it has, so it waits for none and claims nothing. Pods of
fronts are marked when the file is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gantry_protocol.process.config import fingerprint
from gantry_protocol.process.settings_word import SettingsWord

from gantry_operator import names
from gantry_operator.plan.actions import RenewFiles
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.objects import container
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gantry_protocol.admin import QuorumView

    from gantry_operator.plan.actions import ApplyObject
    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import Body, ObjectKey, PodView


def applies_live(statefulset: Body | None) -> bool:
    """Whether pods are made from a template whose image applies settings while running."""
    return bool(live_word(statefulset))


def live_word(workload: Body | None) -> str:
    """The word for what such an image applies; empty for none."""
    annotations = (workload or {}).get("metadata", {}).get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_LIVE, ""))


def live_now(workload: Body | None, component: str, image: str, newest: str) -> str:
    """Rule: what is applied while running, by its word, changes with the image that pods are given.

    An older process would never have it, and say that it has the file.
    """
    if workload is None:
        return newest
    found = container(workload, component)
    is_new = found is not None and found.get("image") != image
    return newest if is_new else live_word(workload)


def live_text(objects: Mapping[ObjectKey, Body], name: str) -> str:
    """The file that pods have now, or are about to; empty where there is none.

    Args:
        objects: of the group.
        name: of the StatefulSet or Deployment, and so of the ConfigMap.
    """
    found = objects.get(("ConfigMap", name)) or {}
    return str((found.get("data") or {}).get(names.CONFIG_KEY, ""))


def live_changes(before: str, after: str, live: Collection[str]) -> list[str]:
    """Names of the live settings that differ between two files."""
    lines = set(before.splitlines()) ^ set(after.splitlines())
    return sorted({line.partition(" = ")[0] for line in lines} & set(live))


class PodWord(NamedTuple):
    """The word of the process in a pod about its settings."""

    pod: PodView
    word: SettingsWord


def told_by_brokers(groups: Iterable[ObservedGroup]) -> list[PodWord]:
    """The words of those brokers that are alive and say one."""
    found = []
    for group in groups:
        for member in group.view.members:
            pod = group.pod_of(member)
            if pod is not None and member.alive and member.settings:
                found.append(PodWord(pod, SettingsWord(member.settings, member.settings_refused)))
    return found


def told_by_controllers(quorum: QuorumView, pods: Iterable[PodView]) -> list[PodWord]:
    """The words of those controllers that were asked and say one."""
    by_name = {pod.name: pod for pod in pods}
    return [
        PodWord(by_name[peer.name], SettingsWord(peer.settings, peer.settings_refused))
        for peer in quorum.peers
        if peer.settings and peer.name in by_name
    ]


def applying(
    told: Iterable[PodWord], pods: Iterable[PodView], text: str, *, under_way: bool
) -> PlanStep | None:
    """The wait until the process in every pod has the settings of a file; None once it has them.

    Args:
        told: the words of those that say one.
        pods: all of them.
        text: the file.
        under_way: a change was seen to begin; then a pod of which nobody speaks is waited for, too.
    """
    wished = fingerprint(text.encode())
    lagging: dict[str, None] = {}
    silent = {pod.name: None for pod in pods} if under_way else {}
    for pod, word in told:
        if word.applied == wished:
            silent.pop(pod.name, None)
        elif word.refused:
            return PlanStep(
                Reason.SETTINGS_REFUSED,
                f"{pod.name} refuses the changed settings, those before hold: "
                f"{word.refused.removesuffix('.')}. Change them.",
                stalled=True,
            )
        else:
            lagging[pod.name] = None
    waits_for = sorted({**lagging, **silent})
    if not waits_for:
        return None
    text = f"Changed settings are applied while running; still to come: {', '.join(waits_for)}."
    return PlanStep(Reason.APPLYING_SETTINGS, text)


def renew(told: Iterable[PodWord], text: str) -> list[RenewFiles]:
    """Rule: a pod whose process has other settings than the file that is there gets that file soon.

    Safe at any time: it changes nothing but the moment at which the kubelet looks.
    """
    wished = fingerprint(text.encode())
    found: dict[str, RenewFiles] = {}
    for pod, word in told:
        if not pod.terminating and wished not in (word.applied, pod.files):
            found[pod.name] = RenewFiles(name=pod.name, uid=pod.uid, settings=wished)
    return [found[name] for name in sorted(found)]


def look_at(action: ApplyObject, pods: Iterable[PodView]) -> list[RenewFiles]:
    """Rule: pods of processes that nobody asks are marked when their file is written anew.

    Those that come later begin with it, and a mark that is missed costs a minute or two.
    """
    if action.manifest["kind"] != "ConfigMap" or not action.exists:
        return []
    wished = fingerprint(action.manifest["data"][names.CONFIG_KEY].encode())
    return [
        RenewFiles(name=pod.name, uid=pod.uid, settings=wished)
        for pod in pods
        if not pod.terminating and pod.files != wished
    ]
