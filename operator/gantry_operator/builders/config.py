"""The configuration file of a group, as a ConfigMap.

The file holds what people set in `spec.config`. What the operator sets itself, identity, addresses
and paths, goes into the environment, which outranks the file. Brokers whose image reads the file
again while running (`live`) find the settings of `spec.retention` there, too. That of a FrontGroup,
whose spec has no `config`, holds what fronts apply while running, and nothing else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from gantry_protocol.settings import broker, controller, front

from gantry_operator import names
from gantry_operator.builders.meta import Manifest, owned, sealed
from gantry_operator.models.known_settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gantry_operator.models import BrokerGroup
    from gantry_operator.models.base import Resource


def toml(settings: Mapping[str, str], source: str = "spec.config") -> str:
    """Renders settings as TOML; values are strings, which the reader converts to its own types."""
    lines = [f"# Written by the Gantry operator from {source}."]
    # A JSON string is a valid TOML basic string once DEL is escaped (https://toml.io, "String").
    lines += [
        f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
        for key, value in sorted(settings.items())
    ]
    return "\n".join(lines) + "\n"


def broker_settings(group: BrokerGroup, *, live: bool) -> dict[str, str]:
    """The settings in the file of a broker group."""
    fields = settings_of(group.spec.retention, "retention") if live else {}
    return dict(group.spec.config) | fields


LIVE_SINCE: Final = {
    names.BROKER: broker.LIVE_SINCE,
    names.CONTROLLER: controller.LIVE_SINCE,
    names.FRONT: front.LIVE_SINCE,
}
NEWEST_LIVE: Final[str] = next(reversed(broker.LIVE_SINCE))
"""The word for what a broker of this version applies while running."""
NEWEST_LIVE_OF_CONTROLLERS: Final[str] = next(reversed(controller.LIVE_SINCE))
NEWEST_LIVE_OF_FRONTS: Final[str] = next(reversed(front.LIVE_SINCE))


def live_keys(word: str, component: str = names.BROKER) -> frozenset[str]:
    """The settings that images with this word apply while running; none where it is empty.

    A word that is not known is from a newer operator, and names all of ours.
    """
    since = LIVE_SINCE[component]
    return since.get(word, since[next(reversed(since))]) if word else frozenset()


def restarting(settings: Mapping[str, str], live: Collection[str]) -> dict[str, str]:
    """Those of a component's settings whose change restarts its pods: all that are not live."""
    return {key: text for key, text in settings.items() if key not in live}


def config_map(
    owner: Resource,
    component: str,
    name: str,
    settings: Mapping[str, str],
    source: str = "spec.config",
    **facts: str,
) -> Manifest:
    """The ConfigMap: the file, and facts about the group for tools and applications."""
    result = owned(owner, component, "v1", "ConfigMap", name)
    result["data"] = {names.CONFIG_KEY: toml(settings, source)} | facts
    return sealed(result)
