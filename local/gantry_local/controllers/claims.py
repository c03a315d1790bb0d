"""PersistentVolumeClaims: bound at once, protected while in use, their directory removed with them.

The volume is a directory of the state directory; sizes are recorded and not enforced. A claim that
asks for more gets it at once, as of a driver that grows volumes under running pods. Of the class
`offline` the volume grows, and its file system when its pod is replaced; of `fixed` the API server
refuses (`strategies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.strategies import CLAIM_PROTECTION
from gantry_local.controllers.direct import Direct, is_finished, is_terminating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gantry_local.apiserver.store import Event
    from gantry_local.controllers.runner import Key

CLAIMS = ("", "persistentvolumeclaims")
PODS = ("", "pods")
OFFLINE = "offline"
"""Storage class whose file systems grow when they are mounted, and not before."""
PENDING = "FileSystemResizePending"


class ClaimController:
    """Binds claims and lets them go once no pod uses them.

    Args:
        direct: Access to the objects.
        release: Called with the volume name of a claim that is gone for good.
    """

    name = "claims"

    def __init__(self, direct: Direct, release: Callable[[str], None]) -> None:
        self._direct = direct
        self._release = release
        # (namespace, claim) → pods that mount it.
        self._users: dict[Key, dict[Key, None]] = {}

    def initial_keys(self) -> Iterable[Key]:
        """Every claim, after counting its users."""
        self._users.clear()
        for pod in self._direct.all(*PODS):
            self._note_user(pod, present=_counts(pod))
        for claim in self._direct.all(*CLAIMS):
            yield claim["metadata"]["namespace"], claim["metadata"]["name"]

    def keys_for(self, event: Event) -> Iterable[Key]:
        """The changed claim, or claims of the changed pod."""
        record = event.record
        if record.resource == CLAIMS:
            if event.type == "DELETED":
                volume = record.obj["spec"].get("volumeName")
                if volume:
                    self._release(volume)
            else:
                yield record.key
        elif record.resource == PODS:
            present = event.type != "DELETED" and _counts(record.obj)
            yield from self._note_user(record.obj, present=present)

    def _note_user(self, pod: dict[str, Any], *, present: bool) -> list[Key]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        touched: list[Key] = []
        for volume in pod["spec"].get("volumes") or []:
            source = volume.get("persistentVolumeClaim")
            if not source:
                continue
            claim = (namespace, source["claimName"])
            users = self._users.setdefault(claim, {})
            if present:
                users[namespace, name] = None
                continue
            users.pop((namespace, name), None)
            if not users:
                del self._users[claim]
                touched.append(claim)
        return touched

    def reconcile(self, key: Key) -> float | None:
        """Bind a new claim; unprotect a deleted one that nobody uses."""
        claim = self._direct.get(*CLAIMS, *key)
        if claim is None:
            return None
        metadata = claim["metadata"]
        finalizers = metadata.get("finalizers") or []
        if is_terminating(claim):
            if CLAIM_PROTECTION in finalizers and key not in self._users:
                kept = [finalizer for finalizer in finalizers if finalizer != CLAIM_PROTECTION]
                self._direct.patch(*CLAIMS, claim, {"metadata": {"finalizers": kept}})
            return None
        protected = CLAIM_PROTECTION in finalizers
        if not protected or "volumeName" not in claim["spec"]:
            kept = finalizers if protected else [*finalizers, CLAIM_PROTECTION]
            patch = {
                "metadata": {"finalizers": kept},
                "spec": {"volumeName": f"pvc-{metadata['uid']}"},
            }
            claim = self._direct.patch(*CLAIMS, claim, patch)
        if claim is not None and (claim.get("status") or {}).get("phase") != "Bound":
            requested = claim["spec"]["resources"]["requests"]
            status = {
                "phase": "Bound",
                "accessModes": claim["spec"]["accessModes"],
                "capacity": dict(requested),
            }
            self._direct.set_status(*CLAIMS, claim, status)
        elif claim is not None:
            self._expand(key, claim)
        return None

    def _expand(self, key: Key, claim: dict[str, Any]) -> None:
        """Gives a bound claim what it asks for."""
        status, wanted = dict(claim["status"]), claim["spec"]["resources"]["requests"]
        if status.get("capacity") == wanted:
            return
        waiting = any(one["type"] == PENDING for one in status.get("conditions") or ())
        if claim["spec"].get("storageClassName") == OFFLINE and key in self._users:
            if waiting:
                return
            status["conditions"] = [
                {
                    "type": PENDING,
                    "status": "True",
                    "lastTransitionTime": self._direct.ambient.now_text(),
                    "message": "Waiting for user to (re-)start a pod to finish file system resize "
                    "of volume on node.",
                }
            ]
        else:
            status["capacity"] = dict(wanted)
            status.pop("conditions", None)
        self._direct.set_status(*CLAIMS, claim, status)


def _counts(pod: dict[str, Any]) -> bool:
    """Whether the pod uses its claims: once it has a node, and until it has ended.

    A pod without a node must not hold a claim back: it waits until that claim is gone.
    """
    return "nodeName" in pod["spec"] and not is_finished(pod)
