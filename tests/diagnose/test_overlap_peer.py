"""Tests of the overlap of communication and computation, compared with HolisticTraceAnalysis on the same traces.

HolisticTraceAnalysis computes the fraction of a rank's communication that computation covers, over a whole trace. The
peer uses the same definition as hpcbench, with two differences: it rounds times to whole microseconds unless
HTA_DISABLE_NS_ROUNDING is set, and rounds its result to 0.01 percentage points. For rank 0 of the peer's own trace of
two ranks over NCCL 2.17, both tools report 15.61 %, and 15.14 % with rounded times.
"""

import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from planted_kineto import collective, kernel, steps, write

from hpcbench.diagnose.kineto import read_rank
from hpcbench.diagnose.spans import merge, subtract, total

N_KERNELS, N_CALLS, LENGTH = 400, 60, 20_000


def random_events(seed: int) -> list[dict[str, Any]]:
    """Return a step with kernels on two streams and collective calls on two others, at random times."""
    rng = random.Random(seed)
    events = steps(0, LENGTH)
    for _ in range(N_KERNELS):
        events.append(kernel(rng.uniform(0, LENGTH - 100), rng.uniform(0.5, 40), stream=rng.choice([7, 8])))
    for _ in range(N_CALLS):
        events.append(collective(rng.uniform(0, LENGTH - 400), rng.uniform(5, 300), stream=rng.choice([40, 41])))
    return sorted(events, key=lambda event: event["ts"])


def measure_overlap(path: Path) -> float:
    """Return the percentage of the communication that computation covers."""
    trace = read_rank(path)
    communication = merge(call.span for call in trace.calls)
    return 100 * (1 - total(subtract(communication, trace.computation)) / total(communication))


def ask_peer(path: Path) -> float:
    """Return the percentage according to HolisticTraceAnalysis."""
    from hta.analyzers.communication_analysis import CommunicationAnalysis
    from hta.common.trace import Trace

    trace = Trace(trace_files={0: str(path)}, trace_dir="")
    trace.parse_traces(use_multiprocessing=False)
    trace.decode_symbol_ids(use_shorten_name=False)
    table = CommunicationAnalysis.get_comm_comp_overlap(trace, visualize=False)
    return float(table["comp_comm_overlap_pctg"].iloc[0])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # pandas 3, used by HolisticTraceAnalysis
@pytest.mark.parametrize("seed", range(3))
def test_the_same_overlap_as_holistic_trace_analysis(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: Callable[[str | None], None]
) -> None:
    need("HolisticTraceAnalysis is missing: see `make test-long`" if find_spec("hta") is None else None)
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    path = write(tmp_path / "rank0.json", random_events(seed), rank=0)
    ours = measure_overlap(path)
    assert 10 < ours < 90
    assert ask_peer(path) == pytest.approx(ours, abs=0.006)
