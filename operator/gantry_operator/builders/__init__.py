"""Pure builders: from a resource to the Kubernetes objects that make it real."""

from gantry_operator.builders.broker import broker_objects
from gantry_operator.builders.controller import controller_objects, quorum_secret
from gantry_operator.builders.front import front_objects
from gantry_operator.builders.meta import Manifest

__all__ = ["Manifest", "broker_objects", "controller_objects", "front_objects", "quorum_secret"]
