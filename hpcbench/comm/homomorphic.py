"""Sums of encoded 8-bit integers with a scale shared by all ranks, as in hZCCL.

First, a maximum all-reduce determines the largest magnitude of each block. The MPI library then sums the 8-bit integers
exactly, in 16 bits. Each value is rounded only once, and no intermediate result is decoded. However, messages are twice
as long as two-shot messages, and the rank with the largest values determines the scale.
"""

import time

import numpy as np
from mpi4py import MPI

from hpcbench.codecs.quant import Quant
from hpcbench.comm.arrays import Array
from hpcbench.comm.memory import Slice, Tally
from hpcbench.contract.rules import HOMOMORPHIC_RANKS

_LARGEST = 127
"""Largest encoded magnitude. Sums of `HOMOMORPHIC_RANKS` such integers fit in 16 bits."""


def all_reduce(comm: MPI.Comm, buf: Array, codec: Quant, tally: Tally) -> Slice:
    """Sum `buf` over the ranks in place.

    Parameters
    ----------
    comm
        At most `HOMOMORPHIC_RANKS` ranks.
    buf
        float32 or float64, shape (n,). If a block contains NaN or infinity on any rank, it becomes NaN on all ranks.
    codec
        Codec whose block size is used.
    tally
        Tally of the bytes. As for all collectives of the library, the bytes of a bandwidth-optimal algorithm are
        counted.
    """
    if comm.size > HOMOMORPHIC_RANKS:
        raise ValueError(
            f"homomorphic: sums over {comm.size} ranks do not fit in 16 bits: use at most {HOMOMORPHIC_RANKS} ranks, "
            "or another algorithm"
        )
    start = time.perf_counter()
    blocks = -(-buf.size // codec.block)
    values = np.zeros((blocks, codec.block), dtype=buf.dtype)  # [blocks, block]
    values.reshape(-1)[: buf.size] = buf
    largest = np.abs(values).max(axis=1, initial=0).astype(np.float32)  # [blocks]
    largest[~np.isfinite(largest)] = np.inf  # MPI's maximum may lose a NaN
    tally.encoded(start)
    yield [comm.Iallreduce(MPI.IN_PLACE, largest, MPI.MAX)]

    start = time.perf_counter()
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        units = np.where(largest > 0, np.float32(_LARGEST) / largest, np.float32(0))[:, None]
        codes = np.rint(np.nan_to_num(values * units)).clip(-_LARGEST, _LARGEST).astype(np.int16)
    tally.encoded(start)
    yield [comm.Iallreduce(MPI.IN_PLACE, codes, MPI.SUM)]

    start = time.perf_counter()
    with np.errstate(invalid="ignore"):
        sums = codes * (largest / np.float32(_LARGEST))[:, None]  # 0 x infinity is NaN
        sums[np.isinf(largest)] = np.nan
    buf[...] = sums.reshape(-1)[: buf.size]
    tally.decoded(start)
    share = 2 * (comm.size - 1) / comm.size
    tally.message_bytes += round(share * buf.nbytes)
    tally.coded_bytes += round(share * buf.nbytes)
    tally.wire_bytes += round(share * (codes.nbytes + largest.nbytes))
