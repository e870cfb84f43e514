"""How fast bilm is, measured so that the figures hold on any machine.

`python -m benchmarks --help` says how. Every row runs in a process of its own and is divided by
the machine's own matrix product, measured in that process just before and just after.
"""
