"""Everything that trains: from a recipe to a run, and from a run to its replay or to the run without a target."""
