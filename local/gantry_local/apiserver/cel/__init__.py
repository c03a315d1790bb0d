"""The subset of CEL that ``x-kubernetes-validations`` rules use.

``parse`` turns text into a tree, ``check`` refuses what cannot be evaluated here (when a CRD is
registered, never silently later), ``evaluate`` computes, ``rules`` walks an object and its schema.
"""
