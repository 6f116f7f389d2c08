"""hpcbench measures whether compressing training traffic pays off on this machine."""

__version__ = "1.0.0"
