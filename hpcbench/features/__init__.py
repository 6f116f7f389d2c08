"""Optional features of the training engine. Each has a directory with all of its parts.

A part may import what the corresponding package may import: `settings`, `rules` and `events` correspond to
``contract``, `engine` to ``parallel``, `traffic` to ``predict``, `observer` to ``train`` and `report` to ``report``.
"""
