"""hpcbench measures whether compressing the training traffic pays on this machine."""

__version__ = "0.1.0"
