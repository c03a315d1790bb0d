"""Custom headers of the remoting protocol, with upstream's wire names."""

from gantry_protocol.headers.codec import from_ext, to_ext

__all__ = ["from_ext", "to_ext"]
