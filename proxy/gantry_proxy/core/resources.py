"""Names of topics and groups in requests.

A namespace becomes a part of the name, ``namespace%name``, as RocketMQ's older clients write it.
"""

from __future__ import annotations

from typing import Any

from gantry_protocol.names import group_problem, topic_problem

from gantry_proxy.core.refusals import CallRefused

SEPARATOR = "%"


def topic_of(resource: Any) -> str:
    """The topic that a ``Resource`` names.

    Raises:
        CallRefused: it cannot be a topic's name.
    """
    return _checked(resource, topic_problem, "ILLEGAL_TOPIC")


def group_of(resource: Any) -> str:
    """The consumer group that a ``Resource`` names.

    Raises:
        CallRefused: it cannot be a group's name.
    """
    return _checked(resource, group_problem, "ILLEGAL_CONSUMER_GROUP")


def full_name(resource: Any) -> str:
    """The name with its namespace, whether it can be one or not."""
    name = str(resource.name)
    if resource.resource_namespace:
        name = f"{resource.resource_namespace}{SEPARATOR}{name}"
    return name


def _checked(resource: Any, problem_of: Any, code: str) -> str:
    name = full_name(resource)
    problem = problem_of(name)
    if problem is not None:
        raise CallRefused(code, problem)
    return name


def fill(resource: Any, name: str) -> None:
    """Write a name into a ``Resource``, with its namespace apart."""
    namespace, separator, rest = name.partition(SEPARATOR)
    if separator and namespace and rest:
        resource.resource_namespace, resource.name = namespace, rest
    else:
        resource.name = name
