"""`hpcbench history`: speeds of one study over weeks, from the SQLite files of ``hpcbench report --export``."""
