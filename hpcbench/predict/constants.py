"""Constants of the model that are not in the measured tables, each with its source.

No other number in this package was chosen.

"Chosen" means that the value was set by hand on the fitting half of the published runs, while errors of the other half
and of the targets were visible. These numbers are no blind test; `benchmarks/predict_published.py` names the halves and
prints the errors of both. "Guessed" means that the value was set before any comparison, and never changed.
"""

PRODUCT_IN_STEP = {"V100": 0.85, "A100": 1.0, "H100": 0.8, "cpu": 1.0}
"""Speed of a matrix product in a step relative to its table, by family of devices: chosen. The table of an H100 comes
from short measurements; in a step its clock falls (see the rows above 0.8 of the peak)."""
TABLE_OF_PCIE = {"A100": 1.07}
"""Speed of the SXM form relative to the PCIe form that the table was measured on: 271 and 253 TFLOP/s at best."""
ATTENTION_TFLOPS = {"A100": 312.0, "H100": 989.4}
"""Peak of the devices on which attention was measured, in 16 bits."""
FP8_SPEED = 1.7
"""Speed of a product in 8 bits over that in 16 bits: 1290 and 760 TFLOP/s at 8192 x 8192 x 8192 on an H100."""
FP8_CAST_BYTES = 5
"""Bytes moved per element to cast an operand to 8 bits, as it is and transposed, with its largest value: guessed."""
MEMORY_IN_STEP = 0.85
"""Bandwidth of norms, activations and sums in a step, relative to the measured stream copy: guessed. Single kernels
reach 0.6 to 1.1 of it (machines/membound.csv)."""
NOT_HIDDEN = 0.7
"""Fraction of the shorter of arithmetic and memory time that a batched product does not hide: attention scores and
weighted sums on an A100 at 130 and 219 TFLOP/s (machines/attention.csv, unfused)."""
KERNEL_S = 8e-6
"""Least seconds of a product on a GPU: the smallest cuBLAS kernels of DeepBench on V100, and 7 us on H100."""
HOST_KERNEL_S = 6e-6
"""Seconds to start a kernel from Python; a layer takes at least this for each of its kernels: guessed."""
SMALL_KERNEL_S = 4e-6
"""Least seconds of a memory-bound kernel: guessed."""
OPTIMIZER_BYTES = 69
"""Bytes of memory traffic for each parameter in a mixed-precision Adam step: 90 ms for 1e9 parameters at 770 GB/s
(bigscience V100 logs, sum of copy, unscaling, clipping, Adam and copy back)."""
LOSS_BYTES = 45
"""Bytes of memory traffic for each logit, forward and backward, of a softmax cross entropy in fp32: A100 43, H100 48
(machines/membound.csv)."""
NETWORK_SHARE = 0.9
"""Fraction of its nominal bandwidth that a node's network gives large collectives: 0.86 to 0.97 on EDR, HDR and NDR."""
NETWORK_LATENCY_S = 15e-6
"""Seconds of a step of a collective between nodes if the site gives no latency: NCCL's constants (14 us a hop)."""
WITHIN_LATENCY_S = 3.4e-6
"""Seconds of a step of a collective within a node over NVLink: NCCL's constant of the simple protocol."""
RING_BYTES_PER_S = {"H100": 362e9, "B200": 560e9}
"""Bandwidth of gathers and reduce-scatters within a node whose switch sums all-reduces: measured on an H100, and scaled
by the ratio of the all-reduces to a B200."""
COLLECTIVE_S = 10e-6
"""Least seconds of a collective: NCCL's base constants are 7 to 14 us."""
OVERLAP_COST = 0.19
"""Slowdown of products while communication is hidden behind them: mean of arXiv 2507.03114."""
PIECES_AT_ONCE = 3
"""Pieces of a product that a GPU makes at the same time while others come or go: Transformer Engine has three streams
for them (NVTE_COMM_OVERLAP_MAX_STREAMS)."""
WAIT_SHARE = 0.02
"""Fraction of a step that ranks wait for the slowest rank, on machines without GPUs: 2 to 6 % in published logs.
Guessed."""
RANK_SPREAD = 0.008
"""Standard deviation of the ranks' times of a step on GPUs. A step takes as long as the slowest rank. GPUs of one node
differ by up to 5 % (machines.md of the sources); fitted on benchmarks/published/programs.csv."""
LEAF_NODES = 4 / 6.25e9
"""Number of nodes below one switch of the fabric for each byte per second of a rank's share of the node's network. 4
nodes of 8 GPUs with 400 Gbit/s, and 32 nodes with one adapter of 400 Gbit/s for each GPU, whose rings stay on the
switch of their rail (a scalable unit of NVIDIA's DGX SuperPOD has 32 nodes)."""
CONTENTION_POWER = 0.4
"""The bandwidth of NCCL's collectives between nodes falls with this power of the number of such switches, because rings
share links of the fabric: fitted on benchmarks/published/programs.csv."""
CODEC_BYTES_PER_S = {"V100": 60e9, "A100": 120e9, "H100": 200e9, "cpu": 1.5e9}
"""Bytes before encoding that a codec processes per second, if it was not measured: assumed."""
CODEC_CALL_S = {"gpu": 20e-6, "cpu": 10e-6}
"""Least seconds of a call of a codec: assumed."""
CODED_RATIO = {"mpc": 0.92, "xpk": 0.72}
"""Encoded bytes per byte of a lossless codec, on training tensors in fp32. The ratio depends on the data: assumed, and
measured by `hpcbench bench network`."""
HOST_LINK_BYTES_PER_S = {"V100": 12e9, "A100": 26e9, "H100": 53e9, "H200": 53e9}
"""Bandwidth between a GPU and its host, measured elsewhere (PCIe 3, 4 and 5)."""
HOST_UPDATE_BYTES = 28
"""Bytes of the host's memory that Adam reads and writes for a parameter in fp32: gradient, weight and two moments."""
HOST_BYTES_PER_S = 20e9
"""Memory bandwidth of the host during an update: assumed."""
CPU_FLOPS_A_CORE = 40e9
"""FLOP/s of fp32 products on one core of a node without measurements: assumed."""
CPU_BYTES_PER_S_A_CORE = 6e9
"""Memory bandwidth of one core of such a node: assumed."""
PLAN_CALL_S = 2.1e-4
"""Seconds of a core for a plan's call in addition to its messages, for its begin and end in Python, if ranks share
cores. This and the next two constants are means of the measurements of results/reference/predict-measured*, whose
predictions are as accurate with them as with the values of each measurement."""
PLAN_MESSAGE_S = 7e-5
"""Seconds of a core for each message of a plan's step after the first one."""
PLAN_FACTOR = 1.2
"""Time of a plan's steps over that of their messages alone, because of sums, copies and frames."""
WAITING_CORES = 0.10
"""Cores that a waiting rank takes from computing ranks if ranks share cores, because it wakes up repeatedly: mean of
five measurements on two cores, 0.07 to 0.12. Predictions of results/reference/predict-measured* are as accurate with it
as with the values of each measurement."""
DRIVING_CORES = 0.085
"""Cores that a progress thread takes while its rank computes, if ranks share cores: mean of the same measurements, 0.07
to 0.12."""
SHARED_CORES_ERROR = 0.30
"""Relative error of a step whose ranks may share cores, in addition to the errors of its inputs. Chosen so that the
intervals contain 19 of 20 measured times: in 95 % of the 200 cases of results/reference/predict-measured*, measured and
predicted times differ by less than 0.27 after calibration by an earlier run, and by less than 0.30 without it."""
ERRORS = {"measured here": 0.06, "measured elsewhere": 0.11, "data sheet": 0.20, "assumed": 0.40}
"""Relative error of a number by its source: assumed. Leave-one-out errors of the tables are 3 to 7 %, and two tables of
one machine's collectives differ by 10 to 20 %. The coverage of the intervals was tested only for ranks that share
cores."""
