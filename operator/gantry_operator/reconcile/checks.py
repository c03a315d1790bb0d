"""The last look before something disruptive: pod, epoch and set, live and not from the cache.

A plan rests on a moment that has passed when it is carried out. Between this look and the deed are
milliseconds, and the deed itself carries preconditions (uid, resourceVersion, epoch), so that what
remains of the gap cannot hit a successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView, QuorumView

from gantry_operator.api.kinds import POD
from gantry_operator.plan.observed import PodView, pod_view
from gantry_operator.reconcile.reread import live

if TYPE_CHECKING:
    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Cache
    from gantry_operator.plan.actions import DeletePod, ScaleDown


async def still_to_delete(
    api: Api, cache: Cache, admin: Admin, namespace: str, group: str, action: DeletePod
) -> PodView | str:
    """The pod as it is now, or why it is not to be deleted any more; the cache learns of it."""
    if action.term is not None:
        quorum = await admin.view()
        if not isinstance(quorum, QuorumView) or quorum.term != action.term:
            return "the quorum changed its leader"
    if action.master_epoch is not None:
        changed = await _changed(admin, group, action.master_epoch, action.sync_state_set)
        if changed:
            return changed
    body = await live(api, cache, POD, namespace, action.name)
    if body is None:
        return "the pod is gone"
    pod = pod_view(body)
    if pod.uid != action.uid:
        return "the pod was replaced"
    if pod.terminating:
        return "the pod is terminating"
    if action.only_if_dead and pod.running:
        return "its container runs again"
    return pod


async def still_to_scale(admin: Admin, group: str, action: ScaleDown) -> str:
    """Empty, or why the StatefulSet is not to be scaled down any more."""
    return await _changed(admin, group, action.master_epoch, action.sync_state_set)


async def _changed(
    admin: Admin, group: str, master_epoch: int, sync_state_set: tuple[int, ...]
) -> str:
    view = await admin.group(group)
    if not isinstance(view, GroupView):
        return "the controllers cannot be asked any more"
    if view.master_epoch != master_epoch:
        return f"the group is in epoch {view.master_epoch} now"
    if not set(sync_state_set) <= set(view.sync_state_set):
        return "a member left the sync-state set"
    return ""
