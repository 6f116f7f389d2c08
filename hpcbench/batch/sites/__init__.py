"""Sites: their files, the checks of these files, and the limits of a machine."""
