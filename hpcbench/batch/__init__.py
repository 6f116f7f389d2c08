"""Sites, launchers, job scripts, schedulers, and the tracking of jobs."""
