"""Build hook: the published messages of RocketMQ's gRPC interface, as a set of descriptors.

Nothing that is generated is in the repository. Every build of the wheel, and every editable
install, runs ``protoc`` over the text of apache/rocketmq-apis v2.1.2 as it was published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "proxy/gantry_proxy/messages"
MESSAGES = f"{FOLDER}/descriptors.binpb"


class MessagesHook(BuildHookInterface):  # type: ignore[type-arg]
    """Makes ``MESSAGES`` before anything is packed."""

    PLUGIN_NAME = "messages"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run ``protoc``."""
        from grpc_tools import protoc

        root = Path(self.root)
        proto = root / FOLDER / "proto"
        well_known = Path(protoc.__file__).parent / "_proto"
        arguments = [
            "protoc",
            f"-I{proto}",
            f"-I{well_known}",
            "--include_imports",
            f"--descriptor_set_out={root / MESSAGES}",
            *(str(path) for path in sorted(proto.rglob("*.proto"))),
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc does not take the messages in {proto}")
        build_data["artifacts"].append(MESSAGES)
