"""The API server as the operator needs it: a few verbs, exact errors, one implementation."""
