"""The kinds of chaos, each one class in one file. A new one is added to `KINDS`."""

from gantry_chaos.kinds.chaos import Chaos
from gantry_chaos.kinds.network import NetworkChaos
from gantry_chaos.kinds.pod import PodChaos

KINDS: tuple[type[Chaos], ...] = (PodChaos, NetworkChaos)
