"""One run: model, data, optimizer, precision, logging. Started on every rank by ``python -m hpcbench.train``."""
