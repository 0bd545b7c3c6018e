"""The sections of a run's governance report, a file each; `explorer.report.run_report` puts them together."""
