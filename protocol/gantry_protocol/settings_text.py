"""Texts in the syntax of Java's properties files, as the codes about settings carry them.

Escapes are not undone: ``mqadmin`` writes none, and no setting here has a value that needs one.
"""

from collections.abc import Mapping


def parse(body: bytes) -> dict[str, str]:
    """Values by key; of a key that comes twice the later one, without blank lines and comments."""
    text = body.decode("utf-8", "replace")
    lines = (line.strip() for line in text.splitlines())
    pairs = [line.partition("=")[::2] for line in lines if line and line[0] not in "#!"]
    return {key.strip(): value.strip() for key, value in pairs}


def write(listing: Mapping[str, str]) -> bytes:
    """A line for each, by key."""
    return "".join(f"{key}={value}\n" for key, value in sorted(listing.items())).encode()


def flag(value: bool) -> str:
    """A truth value as Java writes it."""
    return "true" if value else "false"
