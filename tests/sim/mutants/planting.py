"""How a bug is planted: one piece of a function's source is replaced by another.

The text that is replaced must stand in the function exactly once, so a mutant that the code has
moved away from fails loudly instead of proving nothing. The function object stays and gets new
code, so whoever imported it runs the bug as well.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class StaleMutant(Exception):  # noqa: N818 - a state of the mutant
    """The code has moved on; the mutant must follow it, or go."""


@dataclass(frozen=True)
class Edit:
    """One replacement.

    Attributes:
        where: ``package.module:function`` or ``package.module:Class.method``; a property's getter
            goes by the property's name.
        old: text of its source, indented as if the function stood at the left margin.
        new: what stands there instead.
    """

    where: str
    old: str
    new: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The bug is in the code while the context lasts.

        Raises:
            StaleMutant: there is no such function, or the text is not in it exactly once.
        """
        function = self._function()
        honest = function.__code__
        function.__code__ = self._changed(function)
        try:
            yield
        finally:
            function.__code__ = honest

    def _function(self) -> FunctionType:
        module, _, path = self.where.partition(":")
        found: Any = import_module(module)
        for name in path.split("."):
            try:
                found = inspect.getattr_static(found, name)
            except AttributeError:
                raise StaleMutant(f"there is no {self.where}") from None
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, cached_property):
            found = found.func
        elif isinstance(found, staticmethod | classmethod):
            found = found.__func__
        if not isinstance(found, FunctionType):
            raise StaleMutant(f"{self.where} is no function")
        return found

    def _changed(self, function: FunctionType) -> CodeType:
        source = textwrap.dedent(inspect.getsource(function))
        times = source.count(self.old)
        if times != 1:
            raise StaleMutant(f"{self.where} holds this {times} times, not once: {self.old!r}")
        changed = source.replace(self.old, self.new)
        flags = function.__code__.co_flags & __future__.annotations.compiler_flag
        try:
            module = compile(changed, f"<mutant of {self.where}>", "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            raise StaleMutant(f"{self.where}: the replacement is no Python: {error}") from error
        (code,) = (
            constant
            for constant in module.co_consts
            if isinstance(constant, CodeType) and constant.co_name == function.__name__
        )
        if code.co_freevars != function.__code__.co_freevars:
            raise StaleMutant(f"{self.where} is a closure; plant the bug in what it calls")
        return code


@contextmanager
def planted(edits: Iterable[Edit]) -> Iterator[None]:
    """All of them together."""
    with ExitStack() as stack:
        for edit in edits:
            stack.enter_context(edit.planted())
        yield
