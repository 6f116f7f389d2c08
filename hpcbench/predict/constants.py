"""Model constants that are not in the measured tables, with their sources.

This package contains no other chosen constants.

"Chosen" means that the value was set by hand on the fitting half of the published runs, while the errors of the other
half and of the targets were visible. These errors are not a blind test; `benchmarks/predict_published.py` names the
halves and prints the errors of both. "Guessed" means that the value was set before any comparison and never changed.
"""

PRODUCT_IN_STEP = {"V100": 0.85, "A100": 1.0, "H100": 0.8, "cpu": 1.0}
"""Speed of matrix products in a step relative to the table, by device family (chosen). The H100 table comes from short
measurements. During a training step, the clock rate is lower (see the rows of this table above 80 % of the peak)."""
TABLE_OF_PCIE = {"A100": 1.07}
"""Speed of the SXM variant relative to the PCIe variant in the table. The best rates are 271 and 253 TFLOP/s."""
ATTENTION_TFLOPS = {"A100": 312.0, "H100": 989.4}
"""16-bit peak of the devices on which attention was measured."""
FP8_SPEED = 1.7
"""Speed of an 8-bit product relative to a 16-bit product. The best products on an H100 reach 1382 and 794 TFLOP/s.
The value was guessed to be slightly below this ratio.
"""
FP8_CAST_BYTES = 5
"""Bytes moved per element to find an operand's maximum and cast the operand to 8 bits, untransposed and transposed
(guessed)."""
MEMORY_IN_STEP = 0.85
"""Bandwidth of norms, activations and sums in a step, relative to the measured stream copy (guessed). Single kernels
reach 0.6 to 1.1 times the copy bandwidth (machines/membound.csv).
"""
NOT_HIDDEN = 0.7
"""Exposed fraction of the arithmetic or memory time of a batched product, whichever is shorter, from attention scores
and weighted sums on an A100 at 130 and 219 TFLOP/s (machines/attention.csv, unfused)."""
KERNEL_S = 8e-6
"""Minimum time of a GPU product in seconds: the smallest cuBLAS kernels in DeepBench (V100), and 7 us on an H100."""
HOST_KERNEL_S = 6e-6
"""Seconds to launch a kernel from Python, the minimum time of each kernel of a layer (guessed)."""
SMALL_KERNEL_S = 4e-6
"""Minimum time in seconds of a memory-bound kernel (guessed)."""
OPTIMIZER_BYTES = 69
"""Bytes of memory traffic for each parameter in a mixed-precision Adam step: 90 ms for 1e9 parameters at 770 GB/s
(bigscience V100 logs, sum of copy, unscaling, clipping, Adam and copy back)."""
FACTOR_BYTES = 44
"""Bytes of memory traffic for each gradient that is approximated by a low rank, in fp32: counted from the passes over
matrix and error in `hpcbench/parallel/low_rank.py`."""
SPLIT_BYTES = 20
"""Bytes of memory traffic for each gradient that is sent with mixed widths, in fp32: one pass for the norms, and copies
to the messages and back in `hpcbench/parallel/mixed_widths.py`."""
LOSS_BYTES = 45
"""Bytes of memory traffic for each logit, forward and backward, of a softmax cross entropy in fp32: A100 43, H100 48
(machines/membound.csv)."""
NETWORK_SHARE = 0.9
"""Fraction of a node's nominal network bandwidth that large collectives reach: 0.86 to 0.97 on EDR, HDR and NDR."""
NETWORK_LATENCY_S = 15e-6
"""Latency in seconds of a collective step between nodes, if the site sets no latency: NCCL's 14 us per hop."""
WITHIN_LATENCY_S = 3.4e-6
"""Latency in seconds of a collective step within a node over NVLink: NCCL's constant for the simple protocol."""
RING_BYTES_PER_S = {"H100": 362e9, "B200": 560e9}
"""Bandwidth of gathers and reduce-scatters within a node with in-switch all-reduce. The value for an H100 was
measured. For a B200, the value was scaled by the ratio of all-reduce bandwidths.
"""
COLLECTIVE_S = 10e-6
"""Minimum time in seconds of a collective: NCCL's base constants are 7 to 14 us."""
OVERLAP_COST = 0.19
"""Slowdown of matrix products while communication overlaps with them: mean value in arXiv 2507.03114."""
PIECES_AT_ONCE = 3
"""Number of pieces of a product that a GPU computes at the same time while other pieces are transferred. Transformer
Engine uses three streams for these pieces (NVTE_COMM_OVERLAP_MAX_STREAMS).
"""
WAIT_SHARE = 0.02
"""Fraction of a step during which ranks wait for the slowest rank, on machines without GPUs: 2 to 6 % in published
logs. Guessed."""
RANK_SPREAD = 0.008
"""Standard deviation of the step times of ranks on GPUs. A step takes as long as the slowest rank. GPUs of one node
differ by up to 5 % (ml-engineering). The value is fitted on benchmarks/published/programs.csv."""
LEAF_NODES = 4 / 6.25e9
"""Number of nodes on one leaf switch, divided by the network bandwidth of each rank in byte/s.

A switch connects 4 nodes if 8 GPUs share 400 Gbit/s, and 32 nodes if each GPU has an adapter of 400 Gbit/s. In the
second case, rings stay on the switch of their rail (a scalable unit of NVIDIA's DGX SuperPOD has 32 nodes).
"""
CONTENTION_POWER = 0.4
"""The bandwidth of NCCL's inter-node collectives falls with this power of the number of such switches, because rings
share fabric links. The exponent was fitted on benchmarks/published/programs.csv."""
CODEC_BYTES_PER_S = {"V100": 60e9, "A100": 120e9, "H100": 200e9, "cpu": 1.5e9}
"""Uncompressed bytes per second of a codec without measurements (assumed)."""
CODEC_CALL_S = {"gpu": 20e-6, "cpu": 10e-6}
"""Minimum time of a codec call in seconds (assumed)."""
CODED_RATIO = {"mpc": 0.92, "xpk": 0.72}
"""Encoded bytes per byte of a lossless codec, on fp32 training tensors (assumed). The ratio depends on the data and is
measured by `hpcbench bench network`.
"""
HOST_LINK_BYTES_PER_S = {"V100": 12e9, "A100": 26e9, "H100": 53e9, "H200": 53e9}
"""Bandwidth between a GPU and its host, measured elsewhere (PCIe 3, 4 and 5)."""
HOST_UPDATE_BYTES = 28
"""Bytes of host memory that Adam reads and writes per fp32 parameter: gradient, weight and two moments."""
HOST_BYTES_PER_S = 20e9
"""Host memory bandwidth during an update (assumed)."""
CPU_FLOPS_A_CORE = 40e9
"""FLOP/s of fp32 products on one core, for nodes without measurements (assumed)."""
CPU_BYTES_PER_S_A_CORE = 6e9
"""Memory bandwidth of one core, for nodes without measurements (assumed)."""
PLAN_CALL_S = 2.1e-4
"""Core seconds for starting and ending a plan's call in Python, in addition to its messages, if ranks share cores. This
and the next two constants are means over the measurements in results/reference/predict-measured*. Predictions of these
measurements are as accurate with the means as with each measurement's own values."""
PLAN_MESSAGE_S = 7e-5
"""Core seconds for each message after the first in a plan step."""
PLAN_FACTOR = 1.2
"""Time of a plan's steps divided by the time of their messages. The rest is spent on sums, copies and checksums."""
WAITING_CORES = 0.10
"""Cores that a waiting rank takes from computing ranks if ranks share cores. A waiting rank wakes up repeatedly. The
value is the mean of five measurements on two cores, 0.07 to 0.12. Predictions of results/reference/predict-measured*
are as accurate with this mean as with the value of each measurement.
"""
DRIVING_CORES = 0.085
"""Cores that a progress thread takes while the rank computes, if ranks share cores: mean of the same five
measurements, 0.07 to 0.12."""
SHARED_CORES_ERROR = 0.16
"""Relative error of a step whose ranks may share cores, in addition to the errors of its inputs. The value was
chosen so that an interval contains 8 of 10 measured times. Of the 200 cases of results/reference/predict-measured*,
155 are inside the interval with the tables alone, and 157 after calibration with an earlier run.
"""
UNFITTED_PROGRAM_ERROR = 0.12
"""Relative error of the computing time of a program whose slowdown was not fitted, in addition to the errors of the
tables. The four fitted slowdowns deviate from 1 by 0.078 (root mean square); 0.12 is the half-width of an
80 % interval according to Student's t distribution. The deviations do not grow with the number of GPUs.
"""
ERRORS = {"measured here": 0.06, "measured elsewhere": 0.07, "data sheet": 0.20, "assumed": 0.40}
"""Relative error of an input by source, for intervals that contain 80 % of the measured times. "measured elsewhere" is
calibrated: 44 of 53 published program runs are inside the interval if runs of the same family are left out
(benchmarks/predict_programs.py), among them 29 of the 35 runs of programs with several families. The other errors are
assumed: leave-one-out errors of measured tables are 3 to 7 %."""
