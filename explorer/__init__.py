"""Explorer: find the cheapest training recipe that is as good as your baseline, and prove what went into the model.

Data flows one way through the package:

    data -> engine with methods -> run directory -> store -> analysis, audit -> views -> report

The run directory is the seam. Left of it stands torch and never a database; right of it stands DuckDB and
never torch, so results open on any laptop in a second. Import what you need from its own module
(`from explorer.methods.mixup import mixup_batch`); importing the package alone loads nothing heavy.
"""

__version__ = "0.1.0"
