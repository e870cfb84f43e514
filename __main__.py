"""Explains `python -m bilm` in the folder above a clone that is called bilm."""

raise SystemExit(
    "bilm is not installed, and this folder only has a clone of its repository: run "
    "`pip install ./bilm`, or change into the clone (`cd bilm`)."
)
