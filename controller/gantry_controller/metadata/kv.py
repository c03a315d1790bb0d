"""Key-values of the name service: small texts by namespace and key, which tools write and read.

Nothing here understands them but ``orderTopicConf`` (``metadata.names``): a name server keeps what
it is told, up to bounds.
"""

from collections.abc import Mapping

import msgspec

from gantry_controller.metadata.digest import Parted


class Namespace(Parted, frozen=True, array_like=True):
    """The keys of one namespace; at least one, since the last one takes its namespace along.

    Attributes:
        entries: value by key.
        chars: of all keys and values together; what bounds them is a sum over namespaces.
    """

    entries: dict[str, str] = msgspec.field(default_factory=dict)
    chars: int = 0

    @property
    def parts(self) -> Mapping[str, str]:
        """The values."""
        return self.entries
