"""A local cluster whose API is Kubernetes' own: etcd, kube-apiserver and kube-controller-manager.

The kubelet, the Services and the names are those of every local cluster. They work on a mirror of
the server's objects, and what the kubelet says of pods is sent to the server from there.
"""
