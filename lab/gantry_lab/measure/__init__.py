"""Measurements that are programs of their own: `python -m gantry_lab.measure.NAME`."""
