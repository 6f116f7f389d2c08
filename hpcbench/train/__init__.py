"""One run: model, data, optimizer, precision, logging. Every rank starts it by ``python -m hpcbench.train``.

The schema of a run is imported before PyTorch. PyTorch makes many objects, and each garbage collection goes through all
of them, so the other order would take twice the time.
"""

from hpcbench.contract import run as run
