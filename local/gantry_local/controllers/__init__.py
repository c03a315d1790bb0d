"""Stand-ins for kube-controller-manager: workloads, endpoints, claims, garbage collection.

Each controller decides in a plain function over the objects it sees and is called again whenever
one of them changes (level-triggered); ``runner`` owns the one task that does the calling.
"""
