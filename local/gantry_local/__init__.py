"""A stand-in cluster for a machine without Docker: ``gantry local``.

The operator, kopf, the controllers and the brokers are the real ones. What is replaced is the
platform below them: an API server with the semantics the operator relies on, the StatefulSet
controller, the garbage collector, the kubelet (pods are processes on 127.77.G.N) and Services (TCP
proxies on 127.78.G.N). It never stands in for a real cluster in a claim about Kubernetes.
"""
