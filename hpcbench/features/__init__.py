"""Optional capabilities of the training engine: each has a directory with all of its parts.

The name of a part says on which side of the job script it runs and what it may import, as if it stood in one of the
packages: `settings`, `rules` and `events` in ``contract``, `engine` in ``parallel``, `traffic` in ``predict``,
`observer` in ``train``, `report` in ``report``.
"""
