"""One run: model, data, optimizer, precision, logging. Started on every rank by ``python -m hpcbench.train``.

The schema of a run is imported before PyTorch, whose many objects each collection of garbage walks through: it takes
half of the time so.
"""

from hpcbench.contract import run as run
