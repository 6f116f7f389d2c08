"""Every number of the model that no table gives, with where it comes from. Nothing else in this package is chosen.

What is marked "chosen" was set by hand on the fitting half of published runs (`benchmarks/predict_published.py` names
the halves, and prints the errors of both) while errors of the other half and of the targets were in sight: those are no
blind test. What is marked "guessed" was set before any comparison, and never changed.
"""

PRODUCT_IN_STEP = {"V100": 0.85, "A100": 1.0, "H100": 0.8, "cpu": 1.0}
"""Speed of a matrix product in a step, beside the same product in its table, by family: chosen. An H100's table was
made of short turns, while in a step its clock falls (rows above 0.8 of the peak are such)."""
TABLE_OF_PCIE = {"A100": 1.07}
"""What the family's SXM form is faster than the PCIe form that its table is of: best products 271 and 253 TFLOP/s."""
MEMORY_IN_STEP = 0.85
"""Bandwidth of norms, activations and sums in a step, beside the measured stream copy: guessed. Single kernels
reach 0.6 to 1.1 of it (machines/membound.csv)."""
NOT_HIDDEN = 0.7
"""Share of the shorter of arithmetic and memory time that a batched product does not hide: attention scores and
weighted sums on an A100 at 130 and 219 TFLOP/s (machines/attention.csv, unfused)."""
KERNEL_S = 8e-6
"""The shortest product on a GPU: the smallest cuBLAS kernels of DeepBench on V100, and 7 us on H100."""
HOST_KERNEL_S = 6e-6
"""A kernel that Python starts: a layer takes at least its number of kernels times this: guessed."""
SMALL_KERNEL_S = 4e-6
"""What a memory-bound kernel costs whatever it moves: guessed."""
OPTIMIZER_BYTES = 69
"""Bytes of memory traffic for each parameter in a mixed-precision Adam step: 90 ms for 1e9 parameters at 770 GB/s
(bigscience V100 logs, sum of copy, unscaling, clipping, Adam and copy back)."""
LOSS_BYTES = 45
"""Bytes of memory traffic for each logit, forward and backward, of a softmax cross entropy in fp32: A100 43, H100 48
(machines/membound.csv)."""
NETWORK_SHARE = 0.9
"""Share of its nominal bandwidth that a node's network gives large collectives: 0.86 to 0.97 on EDR, HDR and NDR."""
NETWORK_LATENCY_S = 15e-6
"""A step of a collective between nodes: NCCL's constants (14 us a hop), where the site says nothing."""
WITHIN_LATENCY_S = 3.4e-6
"""A step of a collective within a node over NVLink: NCCL's constant of the simple protocol."""
COLLECTIVE_S = 10e-6
"""What a collective costs whatever it moves: NCCL's base constants are 7 to 14 us."""
OVERLAP_COST = 0.19
"""Part of the time with communication hidden behind products that the products lose: mean of arXiv 2507.03114."""
PIECES_AT_ONCE = 3
"""Pieces of a product that a GPU makes at the same time while others come or go: Transformer Engine has three streams
for them (NVTE_COMM_OVERLAP_MAX_STREAMS)."""
WAIT_SHARE = 0.02
"""Part of a step that ranks wait for the slowest: 2 to 6 % in published logs. Guessed."""
CODEC_BYTES_PER_S = {"V100": 60e9, "A100": 120e9, "H100": 200e9, "cpu": 1.5e9}
"""Values that a codec takes or gives in a second, before the codec, where nothing was measured: assumed."""
CODEC_CALL_S = {"gpu": 20e-6, "cpu": 10e-6}
"""Seconds of a codec's call with few values: assumed."""
CODED_RATIO = {"mpc": 0.92, "xpk": 0.72}
"""Bytes after a lossless codec for each before it, on training tensors in fp32: what their sizes depend on is the
data. Assumed; `hpcbench bench network` measures it."""
HOST_LINK_BYTES_PER_S = {"V100": 12e9, "A100": 26e9, "H100": 53e9, "H200": 53e9}
"""Between a GPU and its host, measured elsewhere (PCIe 3, 4 and 5)."""
HOST_UPDATE_BYTES = 28
"""Bytes of the host's memory that Adam reads and writes for a parameter in fp32: gradient, weight and two moments."""
HOST_BYTES_PER_S = 20e9
"""At which the host's cores do so: assumed."""
CPU_FLOPS_A_CORE = 40e9
"""fp32 products on a core of a node of which nothing was measured: assumed."""
CPU_BYTES_PER_S_A_CORE = 6e9
"""Memory bandwidth of such a core: assumed."""

SHARED_CORES_ERROR = 0.30
"""Relative error of a step whose ranks may share cores, beside the errors of its inputs. Chosen so that intervals hold
19 of 20 measured times: measured and predicted times of results/reference/predict-measured* differ by less than 0.27 in
95 % of 200 cases with what an earlier run taught, and by less than 0.30 by the tables alone."""
ERRORS = {"measured here": 0.06, "measured elsewhere": 0.10, "data sheet": 0.20, "assumed": 0.40}
"""Relative error of a number by what it rests on: assumed. Leave-one-out errors of the tables are 3 to 7 %, and
two tables of one machine's collectives differ by 10 to 20 %. How often an interval
holds the truth was tested for ranks that share cores alone."""
