"""Sections of a run's governance report, one file each; `explorer.report.run_report` puts them together."""
