"""The catalogue of resource types that are served right now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_local.apiserver.errors import no_such_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gantry_local.apiserver.kinds import ResourceType


class Catalogue:
    """Types by (group, plural)."""

    def __init__(self, types: Iterable[ResourceType]) -> None:
        self._types = {resource.key: resource for resource in types}
        # Counts up with every change, so that discovery can be cached.
        self.version = 0

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(list(self._types.values()))

    def type(self, group: str, plural: str) -> ResourceType:
        """The type under (group, plural); 404 otherwise."""
        found = self._types.get((group, plural))
        if found is None:
            raise no_such_path()
        return found

    def find(self, group: str, version: str, plural: str) -> ResourceType:
        """The type under a URL's three words; 404 otherwise."""
        found = self.type(group, plural)
        if found.version != version:
            raise no_such_path()
        return found

    def of_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """The type of objects with this apiVersion and kind."""
        for resource in self._types.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None

    def register(self, resource: ResourceType) -> None:
        """Serve a type, or its new schema."""
        self._types[resource.key] = resource
        self.version += 1

    def drop(self, key: tuple[str, str]) -> None:
        """Stop serving a type."""
        self._types.pop(key, None)
        self.version += 1
