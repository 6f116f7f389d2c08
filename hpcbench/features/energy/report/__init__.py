"""Energy in reports: a run's joules, and the columns and the table about them."""
