"""Objects by label pairs, so that a selector looks at few of them.

Endpoints of 15,000 Services over 15,000 pods would otherwise be quadratic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str, str]
_Pair = tuple[str, str, str]


class LabelIndex:
    """Keys with labels, by (namespace, label, value)."""

    def __init__(self) -> None:
        self._labels: dict[Key, dict[str, str]] = {}
        self._by_pair: dict[_Pair, dict[Key, None]] = {}

    def put(self, key: Key, labels: Mapping[str, str]) -> None:
        """Record the labels of a key, replacing earlier ones."""
        self.drop(key)
        self._labels[key] = dict(labels)
        for label, value in labels.items():
            self._by_pair.setdefault((key[0], label, value), {})[key] = None

    def drop(self, key: Key) -> None:
        """Forget a key."""
        for label, value in self._labels.pop(key, {}).items():
            pair = (key[0], label, value)
            keys = self._by_pair.get(pair, {})
            keys.pop(key, None)
            if not keys:
                self._by_pair.pop(pair, None)

    def matching(self, namespace: str, selector: Mapping[str, str]) -> list[Key]:
        """Keys of the namespace that carry every pair; an empty selector matches nothing."""
        buckets = [self._by_pair.get((namespace, k, v), {}) for k, v in selector.items()]
        if not buckets:
            return []
        smallest = min(buckets, key=len)
        return sorted(key for key in smallest if all(key in bucket for bucket in buckets))


class SelectorIndex:
    """Keys with selectors, filed under the pair that fewest others are filed under."""

    def __init__(self) -> None:
        self._selectors: dict[Key, tuple[_Pair, dict[str, str]]] = {}
        self._by_pair: dict[_Pair, dict[Key, None]] = {}

    def put(self, key: Key, selector: Mapping[str, str]) -> None:
        """Record the selector of a key, replacing an earlier one."""
        self.drop(key)
        if not selector:
            return
        pairs: list[_Pair] = [(key[0], label, value) for label, value in selector.items()]
        rarest = min(pairs, key=lambda pair: len(self._by_pair.get(pair, ())))
        self._selectors[key] = (rarest, dict(selector))
        self._by_pair.setdefault(rarest, {})[key] = None

    def drop(self, key: Key) -> None:
        """Forget a key."""
        found = self._selectors.pop(key, None)
        if found is None:
            return
        keys = self._by_pair[found[0]]
        del keys[key]
        if not keys:
            del self._by_pair[found[0]]

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> list[Key]:
        """Keys of the namespace whose selector matches the labels."""
        matching: list[Key] = []
        for label, value in labels.items():
            for key in self._by_pair.get((namespace, label, value), ()):
                _, selector = self._selectors[key]
                if all(labels.get(k) == v for k, v in selector.items()):
                    matching.append(key)
        return sorted(matching)
