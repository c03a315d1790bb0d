"""Comparison of a user of a cluster with the wish for it (pure); no word has a secret in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from gantry_protocol.access.rules import RULES_MAX, Rule, UserStatus
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator.plan.entities import Compared
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gantry_protocol.admin import UserView

    from gantry_operator.models.message_user import MessageUserSpec
    from gantry_operator.plan.entities import State

MAX_TOLD = 3


class UsersHeld(msgspec.Struct, frozen=True):
    """The users of a cluster, as the controllers told them; ``stamp`` moves with each change."""

    stamp: str
    users: Mapping[str, UserView]


class RuleSteps(NamedTuple):
    """The steps that turn the rules that a user has into those that are wished.

    Attributes:
        put: rules that are new or other.
        delete: policy and resource of those that are to go.
        delete_first: together they would be more than a user may have.
    """

    put: list[Rule]
    delete: list[tuple[str, str]]
    delete_first: bool


def user_standing(
    name: str,
    spec: MessageUserSpec,
    held: UsersHeld | Unreachable,
    *,
    secret_problem: str,
    secret_matches: bool | None,
    secret_is_new: bool = False,
) -> Compared:
    """Whether the cluster has the user as it is wished.

    ``secret_matches`` is None where nobody could say it; ``secret_problem`` says why the Secret
    cannot be used; ``secret_is_new``: it has changed since user and Secret agreed.
    """
    if isinstance(held, Unreachable):
        return Compared(state="Unknown", what=held.reason)
    view = held.users.get(name)
    if secret_problem:
        state: State = "Absent" if view is None else "Differs"
        return Compared(state=state, what=secret_problem, refused=Reason.SECRET_NOT_USABLE)
    if view is None:
        return Compared(state="Absent")
    if secret_matches is None:
        return Compared(state="Unknown", what="The controllers do not say whether it has changed.")
    told = [] if secret_matches else ["another secret"]
    if view.type != spec.type:
        told.append(f"type {view.type}, not {spec.type}")
    if view.status != status_of(spec):
        told.append(f"status {view.status}, not {status_of(spec)}")
    steps = rule_steps(rules_of(view), wished_rules(spec))
    told += [f"other rules on {rule.resource}" for rule in steps.put]
    told += [f"a rule on {resource} that is not wished" for _, resource in steps.delete]
    if not told:
        return Compared(state="Same")
    ours = secret_is_new and len(told) == 1 and not secret_matches
    more = f", and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return Compared(state="Differs", what="; ".join(told[:MAX_TOLD]) + more, ours=ours)


def status_of(spec: MessageUserSpec) -> str:
    """The status of the user in the controllers' words."""
    return (UserStatus.DISABLE if spec.disabled else UserStatus.ENABLE).value


def wished_rules(spec: MessageUserSpec) -> list[Rule]:
    """The rules of a spec that was accepted, in their canonical form."""
    return [rule.rule for rule in spec.rules_]


def rules_of(view: UserView) -> list[Rule]:
    """The rules of a user as the controllers have them."""
    return [
        Rule(
            resource=rule.resource,
            actions=tuple(rule.actions),
            sources=tuple(rule.sources),
            decision=rule.decision,
            policy=rule.policy,
        )
        for rule in view.rules
    ]


def rule_steps(known: Iterable[Rule], wished: Iterable[Rule]) -> RuleSteps:
    """New rules come before old ones go: there is no moment without either."""
    before = {rule.key: rule for rule in known}
    after = {rule.key: rule for rule in wished}
    put = [rule for key, rule in sorted(after.items()) if before.get(key) != rule]
    delete = sorted(before.keys() - after.keys())
    return RuleSteps(put, delete, len(before.keys() | after.keys()) > RULES_MAX)
