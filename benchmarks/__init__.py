"""Benchmarks of bilm, with figures that can be compared between machines.

See `python -m benchmarks --help`. Each row runs in its own process, and its speed is divided by the
speed of a matmul in the same process, measured just before and just after.
"""
