"""Asking a store what a generator of ``Steps`` wishes, one after the other.

A store that answers at once costs no turn of the event loop, and no depth of the stack.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Generic

from gantry_protocol.errors import GantryError

from gantry_broker.store.contract import KeyRead, QueueRead, Refusal, Store
from gantry_broker.store.steps import AppendRequest, ResultT, Steps, StoreRefusedError, Wish

_PENDING: Any = object()


class Run(Generic[ResultT]):
    """One generator under way.

    Args:
        store: who is asked.
        steps: yields wishes.
        done: takes what the generator returned; not called after ``cancel``.
        failed: takes the operating error that ended it.
    """

    def __init__(
        self,
        store: Store,
        steps: Steps[ResultT],
        done: Callable[[ResultT], None],
        failed: Callable[[GantryError], None],
    ) -> None:
        """Nothing is asked before ``start``."""
        self._store = store
        self._steps = steps
        self._done = done
        self._failed = failed
        self._answer: Any = None
        self._asking = False
        self._cancelled = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Go as far as it goes at once."""
        self._advance(None)

    def cancel(self) -> None:
        """Go no further; twice is harmless."""
        self._cancelled = True
        if self._timer is not None:
            self._timer.cancel()

    def _advance(self, answer: Any) -> None:
        while answer is not _PENDING and not self._cancelled:
            try:
                if isinstance(answer, Refusal):
                    wish = self._steps.throw(StoreRefusedError(answer.remark))
                else:
                    wish = self._steps.send(answer)
            except StopIteration as end:
                self._done(end.value)
                return
            except GantryError as error:
                self._failed(error)
                return
            answer = self._ask(wish)

    def _ask(self, wish: Wish) -> Any:
        """The answer, or ``_PENDING`` when it comes later."""
        if isinstance(wish, float):
            self._timer = asyncio.get_running_loop().call_later(wish, self._advance, None)
            return _PENDING
        self._answer, self._asking = _PENDING, True
        if isinstance(wish, QueueRead | KeyRead):
            self._store.read(wish, self._answered)
        elif isinstance(wish, AppendRequest):
            self._store.append(wish.records, self._answered)
        else:
            self._store.offsets(wish, self._answered)
        self._asking = False
        return self._answer

    def _answered(self, answer: Any) -> None:
        if self._asking:
            self._answer = answer
        else:
            self._advance(answer)
