"""Optional features of the training engine. All parts of a feature are in its directory.

Each part follows the import rules of the corresponding package. `settings`, `rules` and `events` correspond to
``contract``, `engine` to ``parallel``, `traffic` to ``predict``, `observer` to ``train``, and `report` to ``report``.
"""
