"""Tasks that live as long as their owner: what one dies of is heard at once.

An owner keeps such a task until it stops it. asyncio tells of a dead task only when nobody refers
to it any more, so such a death would be silent, and half of a process with it.
"""

import asyncio
from collections.abc import Coroutine


def keep(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
    """A task that runs until it is cancelled; any other death is for the loop's handler.

    ``runtime`` ends the process with it.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_observe)
    return task


def _observe(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    task.get_loop().call_exception_handler(
        {"message": f"the task {task.get_name()} died", "exception": error, "task": task}
    )
