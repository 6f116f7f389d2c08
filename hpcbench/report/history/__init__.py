"""Implementation of `hpcbench history`: a study's speed over weeks, from ``hpcbench report --export`` files."""
