"""Views: charts, tables and notebook widgets. They show results and compute none."""
