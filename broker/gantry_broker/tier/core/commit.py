"""One commit of one version, from its first attempt to a known outcome (tiered storage, commit).

::

    UNSENT   create                    Created           -> OURS
                                       Maybe             -> UNKNOWN
    UNKNOWN  read the slot             nothing           -> a wait
                                       our nonce         -> OURS
                                       another nonce     -> lost
    OURS     is there a later version? no                -> committed
                                       yes               -> fenced
    any      a failure                                   -> a wait
    a wait   read the head             nothing new       -> UNSENT, the same bytes
                                       ours, the newest  -> committed
                                       anything else     -> lost

Rules protected: the bytes and the nonce never change between attempts, so that whichever attempt
lands, it is this commit; nothing else is done while the outcome is unknown; and a version that is
ours but not the newest is not a commit: the slot was free because old versions had been deleted,
and the one who deleted them is master now.
"""

from enum import Enum, auto

from gantry_protocol.tier.manifests import Version, encode


class CommitStage(Enum):
    """Knowledge of the outcome."""

    UNSENT = auto()
    UNKNOWN = auto()
    OURS = auto()


class Commit:
    """A version on its way.

    Attributes:
        stage: what is known; the role moves it.
    """

    __slots__ = ("data", "stage", "version")

    def __init__(self, version: Version) -> None:
        """Fix the bytes."""
        self.version = version
        self.data = encode(version)
        self.stage = CommitStage.UNSENT

    def is_mine(self, found: Version) -> bool:
        """Whether ``found`` is this very commit."""
        return found.v == self.version.v and found.nonce == self.version.nonce
