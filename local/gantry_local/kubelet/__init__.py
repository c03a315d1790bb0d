"""The kubelet's stand-in: pods are processes of this machine.

``environment``, ``status`` and ``backoff`` decide without I/O; ``process``, ``probing`` and
``volumes`` act; ``worker`` is one pod's life, ``kubelet`` all of them. Images are not used: a
container's command runs with this interpreter and this installation. Resource limits and security
contexts are recorded and not enforced.
"""
