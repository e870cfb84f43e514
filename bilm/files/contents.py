"""Recognise a placeholder for a model's file by its first bytes."""

from __future__ import annotations

from bilm.files.reading import PathLike


def substitute_for_a_file(path: PathLike) -> str | None:
    """The content of a file without data: nothing, a Git LFS pointer or a web page; None: data."""
    with open(path, "rb") as file:
        start = file.read(256).lstrip().lower()
    if not start:
        return "an empty file"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer instead of the file, which `git lfs pull` gets"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<error")):
        return "a web page (HTML or XML)"
    return None
