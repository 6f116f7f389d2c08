"""Job scripts: rank placement, launch commands, directives, and template variables."""
