"""Explorer notebook: a question and its choices, the answer to it, and the charts and tables that show it."""
