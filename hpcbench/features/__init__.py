"""Optional features of the training engine. All parts of a feature are in its directory.

A part may import what the corresponding package may import: `settings`, `rules` and `events` correspond to
``contract``, `engine` to ``parallel``, `traffic` to ``predict``, `observer` to ``train`` and `report` to ``report``.
"""
