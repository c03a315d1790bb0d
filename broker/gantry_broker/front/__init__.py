"""Stateless processes that serve clients on every group of a cluster; any number run at once.

``asides`` answers sends and pulls from the store of a group's master, ``led_group`` passes the rest
on to that master, ``core.directory`` keeps what the controllers say of groups, ``server`` is the
process.
"""

from gantry_broker.front.server import FrontServer, serve
from gantry_broker.front.settings import FrontSettings

__all__ = ["FrontServer", "FrontSettings", "serve"]
