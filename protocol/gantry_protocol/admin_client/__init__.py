"""The controllers' admin API as its callers see it: who leads, one request, what came of it."""
