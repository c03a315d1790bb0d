"""The quorums that the operator knows, and the stream of changes of each."""
