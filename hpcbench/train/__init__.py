"""Training runs: model, data, optimizer, precision and logging. Every rank runs ``python -m hpcbench.train``.

The schema of a run is imported before PyTorch. In the reverse order, the imports would take twice as long, because
PyTorch creates many objects, which each garbage collection traverses.
"""

from hpcbench.contract import run as run
