"""Vectors of large texts: resumable jobs, output formats, tables."""
