"""Virtual hosts on one machine."""
