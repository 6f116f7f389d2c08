"""Energy in reports: energy of a run, comparison columns, and the energy table."""
