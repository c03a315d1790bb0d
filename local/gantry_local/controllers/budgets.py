"""Status of PodDisruptionBudgets: how many pods may be evicted right now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.selectors import from_label_selector
from gantry_local.controllers.direct import Direct, is_ready, is_terminating
from gantry_local.controllers.labelindex import LabelIndex, SelectorIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_local.apiserver.store import Event
    from gantry_local.controllers.runner import Key

BUDGETS = ("policy", "poddisruptionbudgets")
PODS = ("", "pods")


class BudgetController:
    """Keeps the status of every budget."""

    name = "disruption"

    def __init__(self, direct: Direct) -> None:
        self._direct = direct
        self._pods = LabelIndex()
        self._budgets = SelectorIndex()

    def initial_keys(self) -> Iterable[Key]:
        """Every budget, after indexing what exists."""
        self._pods, self._budgets = LabelIndex(), SelectorIndex()
        for pod in self._direct.all(*PODS):
            self._pods.put(_key(pod), pod["metadata"].get("labels") or {})
        for budget in self._direct.all(*BUDGETS):
            self._budgets.put(_key(budget), _match_labels(budget))
            yield _key(budget)

    def keys_for(self, event: Event) -> Iterable[Key]:
        """The changed budget, or the budgets over the changed pod."""
        record = event.record
        if record.resource == BUDGETS:
            if event.type == "DELETED":
                self._budgets.drop(record.key)
            else:
                self._budgets.put(record.key, _match_labels(record.obj))
            yield record.key
        elif record.resource == PODS:
            labels = record.obj["metadata"].get("labels") or {}
            if event.type == "DELETED":
                self._pods.drop(record.key)
            else:
                self._pods.put(record.key, labels)
            yield from self._budgets.selecting(record.key[0], labels)

    def reconcile(self, key: Key) -> float | None:
        """Write the status when it differs."""
        budget = self._direct.get(*BUDGETS, *key)
        if budget is None:
            return None
        terms = from_label_selector(budget["spec"].get("selector")) or ()
        keys = self._pods.matching(key[0], _match_labels(budget))
        pods = [pod for k in keys if (pod := self._direct.get(*PODS, *k)) is not None]
        chosen = [
            p for p in pods if all(t.matches(p["metadata"].get("labels") or {}) for t in terms)
        ]
        self._direct.set_status(*BUDGETS, budget, status(budget, chosen))
        return None


def _key(obj: dict[str, Any]) -> Key:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _match_labels(budget: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
    return labels


def status(budget: dict[str, Any], pods: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of a budget over its pods."""
    healthy = sum(is_ready(pod) and not is_terminating(pod) for pod in pods)
    spec, total = budget["spec"], len(pods)
    if "minAvailable" in spec:
        desired = amount(spec["minAvailable"], total)
    else:
        desired = max(0, total - amount(spec.get("maxUnavailable", 0), total))
    allowed = max(0, healthy - desired)
    return {
        "observedGeneration": budget["metadata"]["generation"],
        "expectedPods": total,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
    }


def amount(value: int | str, total: int) -> int:
    """A count, or a percentage of ``total`` rounded up."""
    if isinstance(value, int):
        return value
    return -(-total * int(value.rstrip("%")) // 100)
