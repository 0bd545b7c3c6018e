"""The sections of a sweep's report, a file each; `explorer.report.sweep_report` puts them together."""
