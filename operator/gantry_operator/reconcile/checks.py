"""The last look before something disruptive: pod, epoch and set, live and not from the cache.

A plan rests on a moment that has passed when it is carried out. Between this look and the deed are
milliseconds, and the deed itself carries preconditions (uid, resourceVersion, epoch), so that what
remains of the gap cannot hit a successor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import GroupView, QuorumView
from gantry_protocol.admin_client.errors import AdminRefusedError
from gantry_protocol.process import log

from gantry_operator.api.kinds import POD
from gantry_operator.plan.actions import Counted
from gantry_operator.plan.observed import PodView, pod_view
from gantry_operator.reconcile.reread import live

if TYPE_CHECKING:
    from gantry_protocol.admin_client.admin import Admin

    from gantry_operator.api.protocol import Api
    from gantry_operator.cache import Cache
    from gantry_operator.plan.actions import ChangeMembers, DeletePod, Elect, ScaleDown

_log = log.get("checks")


async def still_to_delete(
    api: Api, cache: Cache, admin: Admin, namespace: str, group: str, action: DeletePod
) -> PodView | str:
    """The pod as it is now, or why it is not to be deleted any more; the cache learns of it."""
    if action.term is not None:
        quorum = await admin.view()
        if not isinstance(quorum, QuorumView) or quorum.term != action.term:
            return "the quorum changed its leader"
    changed = await _changed(admin, group, action)
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
    if action.number is not None:
        quorum = await admin.view()
        if not isinstance(quorum, QuorumView) or quorum.leader_id != quorum.node_id:
            return "the quorum's leader cannot be asked any more"
        if action.number in {peer.id for peer in quorum.peers}:
            return f"controller {action.number} takes part in the quorum"
    return await _changed(admin, group, action)


async def change_members(admin: Admin, action: ChangeMembers) -> str:
    """Asks for the change; empty, or why the leader refuses it, which the next plan starts from.

    Raises:
        QuorumUnreachableError: no leader answers; the change may have been made.
    """
    try:
        await admin.change_members(action.change, action.number, action.address)
    except AdminRefusedError as error:
        return str(error)
    return ""


async def elect_each(admin: Admin, elections: tuple[Elect, ...]) -> str:
    """Asks for every election; empty, or why none was held.

    One that is refused, since its shard has changed, keeps no other from being held: the next plan
    starts from what is.

    Raises:
        QuorumUnreachableError: the controllers do not answer.
    """
    refused: list[str] = []
    for election in elections:
        try:
            await admin.elect(election.group, election.broker_id, election.master_epoch)
        except AdminRefusedError as error:
            _log.info("election refused", group=election.group, why=error)
            refused.append(f"{election.group}: {error}")
    return refused[0] if len(refused) == len(elections) else ""


async def _changed(admin: Admin, group: str, action: DeletePod | ScaleDown) -> str:
    """Why what a decision counted on is not so any more; empty if it is."""
    counted = action.shards
    if action.master_epoch is not None:
        counted = (Counted(group, action.master_epoch, action.sync_state_set),)
    for one in counted:
        view = await admin.group(one.group)
        named = f" of {one.group}" if action.shards else ""
        if not isinstance(view, GroupView):
            return "the controllers cannot be asked any more"
        if view.master_epoch != one.master_epoch:
            return f"{one.group if named else 'the group'} is in epoch {view.master_epoch} now"
        if not set(one.sync_state_set) <= set(view.sync_state_set):
            return f"a member left the sync-state set{named}"
    return ""
