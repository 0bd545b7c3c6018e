"""The forms that regulators and standards ask to be filled in, mapped field by field to what a run's record holds."""
