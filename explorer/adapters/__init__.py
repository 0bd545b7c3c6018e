"""Trainers of others, natively: a file for each library, which records its runs and governs its steps.

A file here imports its library, so nothing else in the package imports a file of this folder. Installing the library is
the user's choice: an extra of the same name in `pyproject.toml`.
"""
