"""Settings of one node that an administrator may change while it runs (1009, ``mqadmin``).

They hold on the node that was asked, until it restarts: the replicated settings are the admin API's
business. Upstream drops keys that it does not know in silence and answers 0; here a key that
changes nothing is refused, since somebody relies on it. So is ``enableElectUncleanMaster``: nobody
outside the sync-state set ever becomes master (``metadata.election``).
"""

from collections.abc import Callable

from gantry_protocol import settings_text
from gantry_protocol.errors import BodyError

BLACK_LIST = ("configBlackList", "configStorePath", "rocketmqHome")
"""Upstream's; refused in its words."""

NOTIFY = "notifyBrokerRoleChanged"


class SettingRefused(BodyError):  # noqa: N818 - a plain word reads better where it is caught
    """A setting that cannot be changed, or not to this; nothing was changed."""


class LiveSettings:
    """The settings that can change, by upstream's names.

    Attributes:
        notify_role_changes: whether brokers are told of elections at once; without it they learn of
            them when they ask, every few seconds.
    """

    def __init__(self) -> None:
        self.notify_role_changes = True
        self._setters: dict[str, Callable[[str], Callable[[], None]]] = {NOTIFY: self._notify}

    def listing(self) -> dict[str, str]:
        """All of them as text."""
        return {NOTIFY: settings_text.flag(self.notify_role_changes)}

    def update(self, body: bytes) -> None:
        """Take over a properties text (``key=value`` lines): all of it, or nothing.

        Raises:
            SettingRefused: a key or a value cannot be taken; names it.
        """
        wanted = settings_text.parse(body)
        if wanted.keys() & set(BLACK_LIST):
            raise SettingRefused("Can not update config in black list.")
        for apply in [self._checked(key, value) for key, value in wanted.items()]:
            apply()

    def _checked(self, key: str, value: str) -> Callable[[], None]:
        setter = self._setters.get(key)
        if setter is None:
            known = ", ".join(sorted(self._setters))
            raise SettingRefused(
                f"{key[:64]!r} does not change while a controller runs; what does is: {known}"
            )
        return setter(value)

    def _notify(self, value: str) -> Callable[[], None]:
        chosen = {"true": True, "false": False}.get(value.lower())
        if chosen is None:
            raise SettingRefused(f"{NOTIFY} is true or false, not {value[:64]!r}")
        return lambda: setattr(self, "notify_role_changes", chosen)
