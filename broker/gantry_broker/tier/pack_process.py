"""Makes one pack and ends: ``python -m gantry_broker.tier.pack_process MEMORY``.

MEMORY is a descriptor that the broker opened: the pack is written to it. The ``Order`` comes on
standard input, the ``PackAnswer`` goes to standard output. Why this is a process, ``packing`` says.
"""

import os
import sys

import msgspec
from gantry_protocol.errors import CorruptionError, RecordError

from gantry_broker.tier.packing import Order, PackAnswer, make


def main() -> None:
    """Do it. What is wrong with the log is in the answer; other errors end the process."""
    memory = int(sys.argv[1])
    order = msgspec.msgpack.Decoder(Order).decode(sys.stdin.buffer.read())
    try:
        pack = make(order)
    except (CorruptionError, RecordError) as error:
        answer = PackAnswer(refused=str(error))
    else:
        with os.fdopen(memory, "wb") as file:
            file.write(pack.data)
        answer = PackAnswer(pack.key.hi, pack.entry, pack.tail)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
