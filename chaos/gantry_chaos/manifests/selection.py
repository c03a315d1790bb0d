"""From a selector to pods: what matches, and which of them are taken.

The rule protected here: the same seed, manifest and pods give the same targets, and a selection
that strikes nobody is an error, since an experiment without a target would look survived.
`random-max-percent` may take no pod upstream; here it takes at least one, for the same reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.errors import SelectionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from gantry_chaos.manifests.model import LabelRequirement, PodSelector, Selector

POD_NAMES_TOLD_MAX = 10


class Container(msgspec.Struct, frozen=True):
    """A running container; `id` without its scheme."""

    name: str
    id: str


class Pod(msgspec.Struct, frozen=True):
    """A pod, as far as the choice of targets needs it.

    Attributes:
        ip: empty while it has none.
        containers: only those that run.
        labels: those of the object, and under `chaos.gantry.dev/` what the controllers say of it.
    """

    namespace: str
    name: str
    uid: str
    ip: str = ""
    node: str = ""
    phase: str = "Running"
    host_network: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    containers: tuple[Container, ...] = ()

    @property
    def id(self) -> str:
        """`namespace/name`, as Chaos Mesh's records name pods."""
        return f"{self.namespace}/{self.name}"


LABEL_QUORUM = "chaos.gantry.dev/quorum"
"""`leader` or `follower`, for controllers: observed, since no label of Kubernetes says it."""


def with_quorum_labels(pods: Iterable[Pod], roles: Mapping[str, str]) -> list[Pod]:
    """`pods` with what the controllers say of their quorum; `roles` is by pod name."""
    return [
        msgspec.structs.replace(pod, labels=pod.labels | {LABEL_QUORUM: roles[pod.name]})
        if pod.name in roles
        else pod
        for pod in pods
    ]


def matching(selector: Selector, pods: Iterable[Pod], namespace: str) -> list[Pod]:
    """All pods that a selector matches, by name.

    Args:
        selector: whom to find.
        pods: everybody.
        namespace: of the object that the selector stands in.
    """
    found = [pod for pod in pods if _matches(selector, pod, namespace)]
    return sorted(found, key=lambda pod: pod.id)


def select(
    chosen: PodSelector, pods: Iterable[Pod], *, namespace: str, random: Random, what: str
) -> list[Pod]:
    """The pods that a fault strikes, by name.

    Args:
        chosen: selector and mode.
        pods: everybody.
        namespace: of the object that the selector stands in.
        random: decides where the mode leaves it open.
        what: how an error calls the selector.

    Raises:
        SelectionError: nobody matches.
    """
    everybody = list(pods)
    found = matching(chosen.selector, everybody, namespace)
    if not found:
        named = [pod.id for pod in everybody[:POD_NAMES_TOLD_MAX]]
        raise SelectionError(
            f"{what} matches none of {len(everybody)} pods"
            f"{' (' + ', '.join(named) + ')' if named else ''}: check namespaces and labels."
        )
    fewest, most = chosen.count(len(found))
    number = random.randint(max(1, fewest), max(1, most))
    return sorted(random.sample(found, number), key=lambda pod: pod.id)


def _matches(selector: Selector, pod: Pod, namespace: str) -> bool:
    if selector.pods:
        return pod.name in selector.pods.get(pod.namespace, ())
    return (
        pod.namespace in (selector.namespaces or [namespace])
        and _contains(pod.labels, selector.label_selectors)
        and _contains(pod.annotations, selector.annotation_selectors)
        and (not selector.nodes or pod.node in selector.nodes)
        and (not selector.pod_phase_selectors or pod.phase in selector.pod_phase_selectors)
        and all(_satisfies(pod.labels, wanted) for wanted in selector.expression_selectors)
    )


def _contains(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _satisfies(labels: Mapping[str, str], wanted: LabelRequirement) -> bool:
    value = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":  # a pod without the label satisfies it, as in Kubernetes
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
