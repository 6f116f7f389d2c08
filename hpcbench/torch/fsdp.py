"""Public API: communication objects of FSDP2."""

from hpcbench.programs.fsdp_comm import CompressedAllGather, CompressedReduceScatter

__all__ = ["CompressedAllGather", "CompressedReduceScatter"]
