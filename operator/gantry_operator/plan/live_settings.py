"""Settings that brokers apply while running, and what is known of how far that has come.

The file of a group is a ConfigMap that its pods have mounted; brokers read it again. Nothing is
told to them. Kubelets, which renew a pod's files once a minute or two, do so when the pod changes;
so it gets an annotation, once for each file. What counts is the word of the brokers: the
fingerprint of the file whose settings they have (`MemberView.settings`). A broker that says
nothing of it may be older, or its controllers are: with nobody's word there is nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.process.config import fingerprint

from gantry_operator import names
from gantry_operator.builders.config import live_keys
from gantry_operator.plan.actions import RenewFiles
from gantry_operator.plan.broker_steps import PlanStep
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.observed import Body, ObjectKey, PodView


def applies_live(statefulset: Body | None) -> bool:
    """Whether pods are made from a template whose image applies settings while running."""
    return bool(live_word(statefulset))


def live_word(statefulset: Body | None) -> str:
    """The word for what such an image applies; empty for none."""
    annotations = (statefulset or {}).get("metadata", {}).get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_LIVE, ""))


def live_text(objects: Mapping[ObjectKey, Body], group: str) -> str:
    """The file that the pods of a group have now, or are about to; empty where there is none."""
    found = objects.get(("ConfigMap", names.broker_statefulset(group))) or {}
    return str((found.get("data") or {}).get(names.CONFIG_KEY, ""))


def live_changes(before: str, after: str, statefulset: Body | None) -> list[str]:
    """Names of the settings that differ between two files, and that its pods apply running."""
    lines = set(before.splitlines()) ^ set(after.splitlines())
    return sorted({line.partition(" = ")[0] for line in lines} & live_keys(live_word(statefulset)))


def applying(
    groups: Iterable[ObservedGroup], pods: Iterable[PodView], text: str, *, under_way: bool
) -> PlanStep | None:
    """The wait until every pod's broker has the settings of a file; None once it has them.

    Args:
        groups: those in the pods.
        pods: all of them.
        text: the file.
        under_way: a change was seen to begin; then a pod of which nobody speaks is waited for, too.
    """
    wished = fingerprint(text.encode())
    lagging: dict[str, None] = {}
    silent = {pod.name: None for pod in pods} if under_way else {}
    for group in groups:
        for member in group.view.members:
            pod = group.pod_of(member)
            if pod is None or not member.alive or not member.settings:
                continue
            if member.settings == wished:
                silent.pop(pod.name, None)
            elif member.settings_refused:
                return PlanStep(
                    Reason.SETTINGS_REFUSED,
                    f"{pod.name} refuses the changed settings, those before hold: "
                    f"{member.settings_refused.removesuffix('.')}. Change them.",
                    stalled=True,
                )
            else:
                lagging[pod.name] = None
    waits_for = sorted({**lagging, **silent})
    if not waits_for:
        return None
    text = f"Brokers apply changed settings while running; still to come: {', '.join(waits_for)}."
    return PlanStep(Reason.APPLYING_SETTINGS, text)


def renew(groups: Iterable[ObservedGroup], text: str) -> list[RenewFiles]:
    """Rule: a pod whose broker has other settings than the file that is there gets that file soon.

    Safe at any time: it changes nothing but the moment at which the kubelet looks.
    """
    wished = fingerprint(text.encode())
    found: dict[str, RenewFiles] = {}
    for group in groups:
        for member in group.view.members:
            pod = group.pod_of(member)
            if pod is None or pod.terminating or not (member.alive and member.settings):
                continue
            if wished not in (member.settings, pod.files):
                found[pod.name] = RenewFiles(name=pod.name, uid=pod.uid, settings=wished)
    return [found[name] for name in sorted(found)]
