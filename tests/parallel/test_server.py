"""Tests of the parameter server: clocks, updates, and comparisons with collectives and with a script."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.reason import diagnose
from hpcbench.contract.synchrony import find_server_misfit
from hpcbench.errors import TransitError, UserError
from hpcbench.parallel.server import Push, ServerShard, Tickets, TraceEntry
from hpcbench.train.clocks import lines, write

WORKER = Path(__file__).with_name("server_worker.py")
WORKERS, STEPS = 3, 6


def lead(trace):
    """Given a shard's trace, return the largest lead over the slowest worker that any worker has when it reads."""
    clocks, most = [0] * WORKERS, 0
    for what, worker, clock, _, _ in trace:
        if what == "pull":
            assert clock == clocks[worker]
            most = max(most, clock - min(clocks))
        else:
            assert clock == clocks[worker], "each push is the next one of its worker"
            clocks[worker] += 1
    return most


def updates(trace):
    """Return the number of updates before each trace entry."""
    pushes = 0
    for what, _, _, version, seen in trace:
        assert seen == pushes // WORKERS
        assert version <= seen
        pushes += what == "push"
    return pushes // WORKERS


def random_run(bound, seed, shard=None):
    """Run workers that read and push in a random order permitted by the staleness rule."""
    random = Random(seed)
    shard = shard or ServerShard(WORKERS, bound, lambda sums, number: None)
    reading = {}
    for _ in range(200):
        worker = random.choice([0, 0, 0, 1, 1, 2])
        if worker in reading:
            version = reading.pop(worker)
            shard.push(Push(worker, shard.clocks[worker], version, (1.0,), [np.ones(2)]))
        elif shard.may_read(shard.clocks[worker]):
            reading[worker] = shard.pull(worker, shard.clocks[worker])
    return shard


@pytest.mark.parametrize("bound", [0, 1, 3, None])
def test_no_order_breaks_the_bound(bound):
    for seed in range(20):
        shard = random_run(bound, seed)
        most = lead(shard.trace)
        assert most <= bound if bound is not None else most > 3
        assert updates(shard.trace) == shard.updates
        assert sum(shard.staleness.values()) == shard.updates * WORKERS
        if bound is not None:
            assert max(shard.staleness) <= bound + 1, "only gradients of the last clocks may be missing"


def test_a_clock_rule_off_by_one_is_detected():
    class OffByOne(ServerShard):
        def may_read(self, clock):
            return min(self.clocks) >= clock - self.bound - 1

    leads = [lead(random_run(1, seed, OffByOne(WORKERS, 1, lambda sums, n: None)).trace) for seed in range(5)]
    assert max(leads) == 2


def test_a_lost_or_repeated_push_is_detected():
    shard = ServerShard(2, None, lambda sums, number: None)
    shard.push(Push(0, 0, 0, (), []))
    for clock in (0, 2):
        with pytest.raises(
            TransitError, match=rf"worker 0 pushes gradient {clock}, but 1 of its gradients have arrived"
        ):
            shard.push(Push(0, clock, 0, (), []))


def test_an_update_sums_by_worker_and_clock_in_any_order_of_arrival():
    taken = []
    shard = ServerShard(3, None, lambda sums, number: taken.append((number, sums[0].tolist())))
    values = {0: 1e16, 1: 1.0, 2: -1e16}
    for worker in (2, 0, 1):
        shard.push(Push(worker, 0, 0, (), [np.array([values[worker]])]))
    assert taken == [(0, [(1e16 + 1.0) - 1e16])]


def test_tickets():
    separate, shared = Tickets(2, shared=False, until=2), Tickets(2, shared=True, until=2)
    assert [separate.take(0) for _ in range(3)] == [True, True, False] and separate.take(1)
    assert [shared.take(0) for _ in range(3)] == [True, True, True] and shared.take(1) and not shared.take(1)
    separate.until = shared.until = 9
    assert separate.end_early() == 2 and shared.end_early() == 2
    assert separate.take(1) and not separate.take(0) and not separate.take(1), (
        "the ranks behind continue to the same step"
    )
    shared.until = 9
    assert shared.take(1)
    assert shared.end_early() == 3 and [shared.take(0) for _ in range(2)] == [True, False]


def find_result(mpi_results, key, value):
    (result,) = [r for r in mpi_results(WORKERS, WORKER) if r.get(key) == value and not r.get("fault")]
    return result


@pytest.mark.parametrize("name", ["bsp", "ssp0"])
def test_a_bound_of_none_has_the_bits_of_collectives(mpi_results, name):
    result = find_result(mpi_results, "bits", name)
    assert result["outcome"] == ["completed", "", STEPS]
    assert result["same"] and result["losses"] == result["expected"] and len(result["losses"]) == STEPS + 2
    assert result["staleness"] == [{"0": WORKERS * STEPS}] * WORKERS


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_recorded_clocks_reach_the_bound_and_never_exceed_it(mpi_results, bound):
    result = find_result(mpi_results, "bound", bound)
    assert result["outcome"] == ["completed", "", STEPS]
    assert [lead(trace) for trace in result["traces"]] == [bound] * WORKERS
    assert [updates(trace) for trace in result["traces"]] == [STEPS] * WORKERS
    assert result["clocks"] == [[STEPS] * WORKERS] * WORKERS, "no push is lost or repeated"
    assert len(result["losses"]) == STEPS + 1


def test_a_clock_rule_off_by_one_is_detected_on_ranks(mpi_results):
    (result,) = [r for r in mpi_results(WORKERS, WORKER) if r.get("fault")]
    assert max(lead(trace) for trace in result["traces"]) == result["bound"] + 1


BY_HAND = [
    ("pull", 0, 0, 0, 0),
    ("pull", 1, 0, 0, 0),
    ("pull", 2, 0, 0, 0),
    ("push", 0, 0, 0, 0),
    ("pull", 0, 1, 0, 0),
    ("push", 0, 1, 0, 0),
    ("push", 1, 0, 0, 0),  # third push: first update
    ("pull", 1, 1, 1, 1),
    ("pull", 0, 2, 1, 1),
    ("push", 0, 2, 1, 1),
    ("push", 2, 0, 0, 1),  # computed with version 0
    ("pull", 2, 1, 1, 1),
    ("push", 1, 1, 1, 1),  # sixth push: second update
    ("push", 2, 1, 1, 2),
    ("pull", 1, 2, 2, 2),
    ("push", 1, 2, 2, 2),
    ("pull", 0, 3, 2, 2),
    ("push", 0, 3, 2, 2),  # ninth push: third update
]


def test_asp_follows_a_script_to_a_trace_by_hand(mpi_results):
    result = find_result(mpi_results, "script", True)
    for trace in result["traces"]:
        assert [TraceEntry(*entry) for entry in trace] == [TraceEntry(*entry) for entry in BY_HAND]
    assert result["staleness"] == [{"0": 7, "1": 2}] * WORKERS
    assert result["more"] is False and result["last"] == 3 and len(result["losses"]) == 3


@pytest.mark.parametrize("sync", ["bsp", "ssp", "asp"])
def test_codecs_carry_pushes_and_pulls(mpi_results, sync):
    result = find_result(mpi_results, "coded", sync)
    assert result["outcome"] == ["completed", "", STEPS]
    assert result["losses"][-1] < 5.6 and result["residual"] > 0
    # For each gradient, a worker sends each other shard its part and receives the shard's weights. The bytes are those
    # of a reduce-scatter and an all-gather, whichever worker computed the gradient.
    for name, (message, wire) in result["bytes"].items():
        assert message == result["forms"][name] == 4 * result["forms"]["elements"] * (WORKERS - 1)
        assert 0 < wire < 0.3 * message
    pushed = [sum(clocks) for clocks in result["clocks"]]
    assert pushed == [WORKERS * STEPS] * WORKERS


def test_a_checkpoint_of_bsp_changes_no_bit(mpi_results):
    result = find_result(mpi_results, "resume", True)
    assert result["outcome"] == ["completed", "", STEPS] and result["step"] == 4


def test_replicas_that_differ_at_a_checkpoint_end_the_run_and_the_service(mpi_results):
    result = find_result(mpi_results, "differing", True)
    for state, reason, steps in result["outcomes"]:
        assert (state, steps) == ("failed", 3) and reason.startswith("replicas differ after step 3: ranks 0 and 1 have")
    assert result["serving"] == [False] * WORKERS


def test_clocks_are_written_to_a_file_per_shard_and_extended_after_a_resume(mpi_results):
    """The first attempt ran all six steps, and the second ran the last two."""
    result = find_result(mpi_results, "resume", True)
    assert len(result["recorded"]) == WORKERS
    for place, recorded in enumerate(result["recorded"]):
        first, *entries = map(json.loads, recorded)
        about = {"shard": place, "sync": "bsp", "bound": 0, "workers": WORKERS, "left_out": 0}
        assert first == {**about, "clocks": [0] * WORKERS, "updates": 0, "entries": 2 * WORKERS * STEPS}
        head = 2 * WORKERS * STEPS
        trace = [tuple(entry[key] for key in TraceEntry._fields) for entry in entries[:head]]
        assert updates(trace) == STEPS and lead(trace) == 0
        again, *later = entries[head:]
        assert again == {**about, "clocks": [4] * WORKERS, "updates": 4, "entries": 2 * WORKERS * 2}
        assert [entry["clock"] for entry in later if entry["what"] == "push"] == [4] * WORKERS + [5] * WORKERS


def test_a_trace_reports_its_omitted_entries(monkeypatch):
    monkeypatch.setattr("hpcbench.parallel.server.MOST_RECORDED", 3)
    shard = ServerShard(1, None, lambda sums, number: None)
    for clock in range(3):
        shard.push(Push(0, clock, shard.pull(0, clock), (), []))
    about, *entries = map(json.loads, lines(shard, place=0, sync="asp", began=[0]))
    assert (about["entries"], about["left_out"], len(entries)) == (3, 3, 3) and about["bound"] is None
    assert entries[1] == {"what": "push", "worker": 0, "clock": 0, "version": 0, "updates": 0}


def test_clocks_that_cannot_be_written_are_one_line(tmp_path):
    (tmp_path / "clocks").write_text("")
    with pytest.raises(UserError, match=r"shard-2\.jsonl: the clocks cannot be written: "):
        write(tmp_path / "clocks", ServerShard(2, 1, lambda sums, number: None), place=2, sync="ssp", began=[0, 0])


@pytest.mark.parametrize("who", ["worker", "shard"])
def test_a_rank_that_is_killed_ends_the_run(mpi_run, tmp_path, who):
    """The error names the signal. The run must not hang or blame another rank."""
    done = mpi_run(WORKERS, WORKER, who, server=None, timeout=60)
    assert done.returncode != 0
    errors, log = tmp_path / "err.txt", tmp_path / "log.txt"
    errors.write_text(done.stderr)
    log.write_text(done.stdout)
    reason = diagnose(done.returncode, errors, log).reason
    assert "was killed by signal 9 (KILL)" in reason, f"{reason}:\n{done.stderr}\n{done.stdout}"


@pytest.mark.parametrize(
    ("changes", "layout", "message"),
    [
        ({"clip": 1.0}, {}, "train.clip: clipping needs"),
        ({"zero": 0}, {}, "train.zero: a parameter server needs"),
        ({"overlap": False}, {}, "train.overlap: a shard must answer"),
        ({"precision": "fp16"}, {}, "train.precision: all ranks must agree"),
        ({"offload": True}, {}, "train.offload: the shards"),
        ({"trace": {"steps": [1, 2]}}, {}, "train.trace: sync bsp"),
        ({"staleness": 2}, {}, "train.staleness: sync bsp"),
        ({"slow_rank": 7, "slow_factor": 2.0}, {}, "train.slow_factor: cannot slow down rank 7"),
        ({}, {"tp": 2}, "layout.tp: sync bsp"),
        ({}, {"pp": 2}, "layout.pp: sync bsp"),
        ({}, {"cp": 2}, "layout.cp: sync bsp"),
        ({}, {"dp": 1}, "layout.dp: sync bsp"),
    ],
)
def test_unsupported_combinations_are_refused_with_a_remedy(changes, layout, message):
    from runs import MODELS, TRAIN

    train = TRAIN.changed(**{"sync": "bsp", "clip": 0.0, **changes})
    misfit = str(find_server_misfit(MODELS["neox"], train, Layout(**{"dp": 3, **layout})))
    assert misfit.startswith(message)
    assert ": set " in misfit or "use " in misfit or ": leave " in misfit
