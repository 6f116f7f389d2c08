"""How it is run: sites, launchers, job scripts, schedulers, tracking."""
