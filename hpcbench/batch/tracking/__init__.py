"""State of submitted jobs."""
