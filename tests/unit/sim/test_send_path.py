"""How much of the product somebody has to read who follows one send.

From the client's bytes to the log, to the replicas' disks, to confirm and to the answer. Whoever
puts a file on this way takes another off it. One file and some 26 calls of it record the steps of
the replica core (``gantry_broker/decisions``), and decide nothing.
"""

from sim.product.send_path import send_path

FILES_MAX = 41
CALLS_MAX = 687  # in client, master and both replicas; of the send with the fewest


def test_a_send_passes_few_files() -> None:
    path = send_path()
    assert "gantry_broker/log/commit_log.py" in path.broker
    assert "gantry_broker/replica/following.py" in path.broker
    assert len(path.broker) <= FILES_MAX, path.broker
    assert path.calls <= CALLS_MAX
