"""Damaged and hostile files, given to whatever of bilm reads them.

    python -m tests.fuzz --seed 1 --minutes 30

Each case is a small good file of some format, changed as a seed says, and read in a process whose
memory and time are bounded. It either works, and what comes out is finite and of the right shape,
or it is refused by an error for users. All else is a finding, and can be had again by its seed.

    changes.py    how files are changed
    formats.py    the formats: how good files are made and read, and what has to hold
    worker.py     the process that reads them
    run.py        starts it, watches it, and gathers findings
"""
