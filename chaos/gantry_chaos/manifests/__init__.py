"""Chaos Mesh manifests (`chaos-mesh.org/v1alpha1`): what they mean, and whom they select."""
