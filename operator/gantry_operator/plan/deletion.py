"""Deletion of a BrokerGroup that asked for its metadata to be cleaned (whenDeleted: Delete).

Without the operator's finalizer nothing is done here: garbage collection removes what the resource
owns. With it, the order is: stop the pods, then let the controllers forget the group, then let the
resource go. A group that was forgotten while its brokers still ran would be registered again.

If the controllers cannot be reached the finalizer stays, since removing it would leave metadata
behind that nobody looks for; people can remove it by hand, which is documented with its name. If
the ControllerGroup itself is gone, so is the metadata.
"""

from __future__ import annotations

from gantry_protocol.admin import GroupView

from gantry_operator import names
from gantry_operator.plan.actions import Action, CheckAgain, DeleteStatefulSet, ForgetGroup
from gantry_operator.plan.observed import BrokerObserved, NotDeclared
from gantry_operator.plan.steady import finalizer_action

RETRY_S = 2.0


def delete_broker_group(seen: BrokerObserved) -> list[Action]:
    """What is to be done next for a resource with a deletion timestamp."""
    if names.FINALIZER not in seen.meta.finalizers:
        return []
    name = names.broker_statefulset(seen.meta.name)
    statefulset = seen.objects.get(("StatefulSet", name))
    if statefulset is not None:
        meta = statefulset["metadata"]
        if meta.get("deletionTimestamp") is None:
            return [DeleteStatefulSet(name=name, uid=meta["uid"]), CheckAgain(after_s=RETRY_S)]
        return [CheckAgain(after_s=RETRY_S)]
    if seen.pods:
        return [CheckAgain(after_s=RETRY_S)]
    if not seen.controllers_exist or isinstance(seen.view, NotDeclared):
        return [finalizer_action(seen, present=False)]
    if isinstance(seen.view, GroupView):
        if seen.view.uid not in (None, seen.meta.uid):
            # A newer resource of the same name has taken the group over; it is not ours to clean.
            return [finalizer_action(seen, present=False)]
        return [ForgetGroup(uid=seen.meta.uid), CheckAgain(after_s=RETRY_S)]
    return [CheckAgain(after_s=RETRY_S)]
