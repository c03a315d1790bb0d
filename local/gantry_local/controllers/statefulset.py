"""The StatefulSet controller: plans for one set and carries the plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.controllers import statefulset_plan
from gantry_local.controllers.direct import Direct, is_terminating, owner_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_local.apiserver.store import Event
    from gantry_local.controllers.runner import Key

SETS = ("apps", "statefulsets")
PODS = ("", "pods")
CLAIMS = ("", "persistentvolumeclaims")
REVISIONS = ("apps", "controllerrevisions")
HELD_RETRY_S = 0.2
"""Between two looks at a claim that is on its way out and holds a pod back."""


class StatefulSetController:
    """Keeps pods and claims of every StatefulSet."""

    name = "statefulset"

    def __init__(self, direct: Direct) -> None:
        self._direct = direct

    def initial_keys(self) -> Iterable[Key]:
        """Every set."""
        for sts in self._direct.all(*SETS):
            yield sts["metadata"]["namespace"], sts["metadata"]["name"]

    def keys_for(self, event: Event) -> Iterable[Key]:
        """The changed set, or the set that owns the changed pod."""
        record = event.record
        if record.resource == SETS:
            yield record.key
        elif record.resource == PODS:
            for owner in record.obj["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "StatefulSet":
                    yield record.key[0], owner["name"]

    def reconcile(self, key: Key) -> float | None:
        """One step for one set; changes of pods call again."""
        sts = self._direct.get(*SETS, *key)
        if sts is None:
            return None
        pods = self._direct.owned(sts, *PODS)
        templates = self._revisions(sts, pods)
        plan = statefulset_plan.plan(sts, pods, self._claims(sts, pods), templates)
        for claim in plan.create_claims:
            self._direct.create(*CLAIMS, claim)
        for pod in plan.create_pods:
            self._direct.create(*PODS, pod)
        for claim, owners in plan.own_claims:
            self._direct.patch(*CLAIMS, claim, {"metadata": {"ownerReferences": owners}})
        for pod in plan.delete_pods:
            self._direct.delete(*PODS, pod)
        self._direct.set_status(*SETS, sts, plan.status)
        return HELD_RETRY_S if plan.held_by else None

    def _claims(self, sts: dict[str, Any], pods: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The set's claims: for each template, of wanted ordinals and of pods still there."""
        namespace = sts["metadata"]["namespace"]
        ordinals = set(range(sts["spec"]["replicas"]))
        ordinals |= {int(pod["metadata"]["name"].rpartition("-")[2]) for pod in pods}
        found: dict[str, dict[str, Any]] = {}
        for template in sts["spec"].get("volumeClaimTemplates") or []:
            for ordinal in ordinals:
                name = statefulset_plan.claim_name(sts, template, ordinal)
                claim = self._direct.get(*CLAIMS, namespace, name)
                if claim is not None:
                    found[name] = claim
        return found

    def _revisions(
        self, sts: dict[str, Any], pods: list[dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Templates by revision, after recording the current one and dropping unused old ones."""
        known = {r["metadata"]["name"]: r for r in self._direct.owned(sts, *REVISIONS)}
        update = statefulset_plan.revision_name(sts)
        newest = max((r["revision"] for r in known.values()), default=0)
        if update not in known and not is_terminating(sts):
            created = self._direct.create(*REVISIONS, _revision(sts, update, newest + 1))
            if created is not None:
                known[update] = created
        elif update in known and known[update]["revision"] < newest:
            patch = {"revision": newest + 1}
            self._direct.patch(*REVISIONS, known[update], patch)
        used = {pod["metadata"]["labels"].get(statefulset_plan.REVISION_LABEL) for pod in pods}
        used |= {update, (sts.get("status") or {}).get("currentRevision")}
        unused = sorted(
            (r for name, r in known.items() if name not in used), key=lambda r: r["revision"]
        )
        for revision in unused[: max(0, len(unused) - sts["spec"]["revisionHistoryLimit"])]:
            self._direct.delete(*REVISIONS, revision)
        return {name: r["data"]["spec"]["template"] for name, r in known.items()}


def _revision(sts: dict[str, Any], name: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": sts["metadata"]["namespace"],
            "labels": dict((sts["spec"]["selector"] or {}).get("matchLabels") or {}),
            "ownerReferences": [owner_reference(sts)],
        },
        "data": {"spec": {"template": sts["spec"]["template"]}},
        "revision": number,
    }
