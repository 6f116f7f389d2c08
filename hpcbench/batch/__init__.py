"""Sites, launchers, job scripts, schedulers, and job tracking."""
