"""The workshop beside the product: benchmarks, soak, chaos runs, simulated clusters, measurements.

Runs from a checkout as `python -m gantry_lab`; neither the wheel nor the image holds it. It may
import everything; nothing of the product may import it.
"""
