"""The machines: their files, what is wrong with one, and what one allows."""
