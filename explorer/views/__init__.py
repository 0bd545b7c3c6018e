"""What is drawn: charts, tables and notebook widgets. Nothing here computes a result; it shows what it is given."""
