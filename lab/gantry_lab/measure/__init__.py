"""Measurements that are programs of their own: `python -m gantry_lab.measure.NAME`.

`doors` and `groups` start what tests start: they need `PYTHONPATH=tests`.
"""
