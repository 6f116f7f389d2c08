"""hpcbench measures whether compressing training traffic pays off on this machine."""

__version__ = "0.1.0"
