"""PodChaos with the field names and meanings of Chaos Mesh: pods deleted, containers killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gantry_chaos.core.actions import DeletePod, Injection, KillContainer
from gantry_chaos.errors import InjectionError
from gantry_chaos.inject.proof import Replaced
from gantry_chaos.kinds.chaos import Chaos, Prepared

if TYPE_CHECKING:
    from gantry_chaos.core.actions import Action
    from gantry_chaos.kinds.chaos import Site

GRACE_PERIOD_MAX_S = 3600


class PodChaos(Chaos):
    """`pod-kill` deletes pods, `container-kill` kills containers; both strike once.

    Attributes:
        grace_period: seconds that a deleted pod is given; 0 kills at once.
    """

    FIELD: ClassVar[str] = "podChaos"
    STRIKES_ONCE: ClassVar[bool] = True

    action: Literal["pod-kill", "container-kill"]
    grace_period: int = Field(default=0, ge=0, le=GRACE_PERIOD_MAX_S)
    container_names: list[str] = Field(default=[])

    @model_validator(mode="after")
    def _fields_of_the_action(self) -> Self:
        if self.action == "container-kill" and not self.container_names:
            raise ValueError("action container-kill needs containerNames")
        if self.action == "pod-kill" and self.container_names:
            raise ValueError("action pod-kill takes no containerNames")
        if self.action == "container-kill" and self.grace_period:
            raise ValueError("action container-kill takes no gracePeriod")
        return self

    def what(self) -> str:
        """See `Chaos`."""
        if self.action == "pod-kill":
            return f"pod-kill, grace {self.grace_period} s"
        return f"container-kill {', '.join(self.container_names)}"

    def refused_on_processes(self) -> str:
        """See `Chaos`."""
        if self.action == "pod-kill" and self.grace_period == 0:
            return (
                "deletes a pod with gracePeriod 0, but gantry local always lets a process end by "
                "itself: use container-kill, or set gracePeriod."
            )
        return ""

    def prepare(self, site: Site) -> Prepared:
        """See `Chaos`; proved by the names whose identity must change."""
        actions: list[Action] = []
        names: list[str] = []
        for pod in site.sources:
            if self.action == "pod-kill":
                actions.append(DeletePod(pod.namespace, pod.name, pod.uid, self.grace_period))
                names.append(pod.id)
                continue
            running = {container.name: container.id for container in pod.containers}
            for name in self.container_names:
                if name not in running:
                    have = ", ".join(sorted(running)) or "none"
                    raise InjectionError(
                        f"Pod {pod.id} runs no container {name!r}; it runs {have}."
                    )
                actions.append(KillContainer(pod.namespace, pod.name, name, running[name]))
                names.append(f"{pod.id}/{name}")
        struck = tuple(pod.id for pod in site.sources)
        return Prepared(Injection(struck, tuple(actions)), [Replaced(tuple(names))])
