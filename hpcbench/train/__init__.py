"""Training runs: model, data, optimizer, precision and logging. Every rank runs ``python -m hpcbench.train``.

The schema of a run is imported before PyTorch. The reverse order would take twice as long, because PyTorch creates many
objects and each garbage collection traverses all of them.
"""

from hpcbench.contract import run as run
