"""All that both sides of a job script share: files, log lines, states, and the settings of a run."""
