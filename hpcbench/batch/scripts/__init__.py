"""Job scripts: the shape of the ranks, launch commands, directives, and the variables of the templates."""
