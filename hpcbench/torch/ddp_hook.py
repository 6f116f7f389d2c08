"""Public API: communication hook of DistributedDataParallel."""

from hpcbench.programs.ddp_hook import Hook, compressed

__all__ = ["Hook", "compressed"]
