"""The outcome of a look at whose hand was shaken."""

from typing import NamedTuple


class Admission(NamedTuple):
    """See the module.

    Attributes:
        greeting: said to the peer first.
        refusal: why the connection ends after that; empty if it does not.
    """

    greeting: bytes = b""
    refusal: str = ""


EVERYBODY = Admission()
