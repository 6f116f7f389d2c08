"""Tests that pipelines without a flush follow the expected order, with results bitwise identical to a simulator's."""

from pathlib import Path

import pytest
from delayed import versions_of
from stream_cases import AFTER_RESUME, DIVERGED, FAULTY, GRID, RESUMED, STEPS, Case

from hpcbench.contract.experts import Experts
from hpcbench.contract.layout import Layout
from hpcbench.contract.synchrony import find_stream_misfit
from hpcbench.contract.training import find_optimizer_misfit
from hpcbench.parallel.schedule import one_f_one_b
from hpcbench.parallel.stream import Stream
from hpcbench.predict import volume

WORKER = Path(__file__).with_name("stream_worker.py")
RANKS = 4
EACH = pytest.mark.parametrize("case", GRID, ids=lambda case: case.name)
SHAPES = [(p, m) for p in (2, 3, 4, 7) for m in (1, 2, 3, 7, 8)]


def stream_of(p: int, m: int, kind: str) -> Stream:
    return Stream(p, m, steps=9, vertical=kind == "vertical", double=kind == "2bw")


@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_steps_joined_are_one_pipeline_without_flush(p, m):
    stream = stream_of(p, m, "pipedream")
    for stage in range(p):
        concatenated = [action for step in range(stream.steps) for action in stream.actions(stage, step)]
        assert concatenated == list(one_f_one_b(stage, p, stream.total))
        for step in range(1, stream.steps):
            done = [action for k in range(step) for action in stream.actions(stage, k)]
            alive = {a.microbatch for a in done if a.work == "forward"}
            assert sorted(alive - {a.microbatch for a in done if a.work == "backward"}) == [
                *stream.entered(stage, step)
            ]


KINDS = ("pipedream", "vertical", "2bw")


@pytest.mark.parametrize(
    ("p", "m", "kind"), [(p, m, kind) for p, m in SHAPES for kind in KINDS if kind != "2bw" or m >= p]
)
def test_versions_are_those_that_counting_gives(p, m, kind):
    stream = stream_of(p, m, kind)
    schedule = "pipedream-2bw" if kind == "2bw" else "pipedream"
    version = versions_of(Case(schedule, Layout(pp=p), m, kind == "vertical"), stream.steps)
    for stage in range(p):
        alive, held = {}, {0}
        most = 1
        for step in range(stream.steps):
            updates = step
            for work, i, _ in stream.actions(stage, step):
                if work == "forward":
                    used = stream.version(stage, i)
                    assert used == version(stage, i)
                    assert used <= updates, "no stage uses a version that does not exist yet"
                    assert used in held
                    alive[i] = used
                else:
                    del alive[i]
            following = max(alive, default=-1) + 1 or (step + 1) * m
            oldest = min([*alive.values(), stream.version(stage, following)])
            held = {v for v in held | {step + 1} if v >= oldest}
            most = max(most, len(held))
        assert most == stream.versions(stage)


@pytest.mark.parametrize("p", [2, 3, 4])
def test_formulas_of_the_papers(p):
    """Check the update rule W(t+1) = W(t) - lr gradient(W1(t-p+1), ..., Wp(t)). With vertical sync, all versions are
    t-p+1.

    Each step has one micro-batch.
    """
    for t in range(p, 9):
        assert [stream_of(p, 1, "pipedream").version(r, t) for r in range(p)] == [t - p + 1 + r for r in range(p)]
        assert {stream_of(p, 1, "vertical").version(r, t) for r in range(p)} == {t - p + 1}
    double = stream_of(p, 4, "2bw")
    assert all(double.version(r, 4 * t + k) == t - 1 for t in range(1, 9) for k in range(4) for r in range(p))
    assert [stream_of(p, 1, "pipedream").versions(r) for r in range(p)] == [p - r for r in range(p)]
    assert {stream_of(p, 1, "vertical").versions(r) for r in range(p)} == {p}


def find_result(mpi_results, case, fault=None):
    (result,) = [r for r in mpi_results(RANKS, WORKER) if (r.get("case"), r["fault"]) == (case.name, fault)]
    return result


@EACH
def test_weights_have_the_bits_of_a_simulator_of_delayed_updates(mpi_results, case):
    result = find_result(mpi_results, case)
    assert result["other_bits"] is False
    assert result["weights"] == result["loss"] == result["evaluation"] == 0.0


@EACH
def test_each_stage_uses_and_holds_the_versions_of_the_formula(mpi_results, case):
    pp, m = case.layout.pp, case.micro_batches
    version = versions_of(case, STEPS)
    for stage, most, used, alive in find_result(mpi_results, case)["held"]:
        assert used == [[i, version(stage, i)] for i in range(STEPS * m)]
        kind = "2bw" if case.schedule == "pipedream-2bw" else "vertical" if case.vertical else "pipedream"
        assert most == Stream(pp, m, STEPS, vertical=kind == "vertical", double=kind == "2bw").versions(stage)
        assert alive == pp - stage
        if case.vertical:
            assert used == [[i, version(0, i)] for i in range(STEPS * m)], "the version of the input"


@EACH
def test_message_bytes_are_those_of_the_formula(mpi_results, case):
    run = case.run
    expected = volume.count_all_ranks_bytes(run.model, run.train, run.layout)
    sent = {key: nbytes for key, nbytes in find_result(mpi_results, case)["bytes"].items() if nbytes}
    assert sent == {" ".join(key): STEPS * nbytes for key, nbytes in expected.items()}


@pytest.mark.parametrize("fault", FAULTY)
def test_planted_fault_is_detected(mpi_results, fault):
    assert FAULTY[fault] in GRID, "without the fault the run is correct"
    assert find_result(mpi_results, FAULTY[fault], fault)["weights"] > 1e-6


def continued(mpi_results, case, fault=None):
    (result,) = [r for r in mpi_results(RANKS, WORKER) if (r.get("resume"), r["fault"]) == (case.name, fault)]
    return result


@pytest.mark.parametrize("case", RESUMED, ids=lambda case: case.name)
def test_a_run_continues_with_the_same_bits_and_versions_in_flight(mpi_results, case):
    result = continued(mpi_results, case)
    assert result["states"] == ["completed"] * 3
    assert result["same"] == [True, True], "neither writing a checkpoint nor starting from it changes anything"
    assert result["used"] == STEPS


@pytest.mark.parametrize("fault", AFTER_RESUME)
def test_planted_fault_after_a_resume_is_detected(mpi_results, fault):
    assert continued(mpi_results, AFTER_RESUME[fault], fault)["same"] == [True, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"clip": 1.0}}, "train.clip: pipedream does not synchronize the stages"),
        ({"train": {"precision": "fp16"}}, "train.precision: pipedream does not synchronize the stages"),
        ({"train": {"zero": 3}}, "train.zero: pipedream keeps several versions"),
        ({"train": {"offload": True}}, "train.offload: pipedream keeps its versions"),
        ({"train": {"schedule": "pipedream-2bw", "vertical_sync": True}}, "train.vertical_sync: every stage"),
        ({"train": {"schedule": "1f1b", "vertical_sync": True}}, "train.vertical_sync: 1f1b keeps one version"),
        ({"model": {"tied": True}}, "model.tied: pipedream does not synchronize the stages"),
        ({"layout": {"pp": 1}}, "layout.pp: pipedream needs 2 stages"),
        ({"layout": {"tensor": "2d", "tp": 4}}, "layout.tensor: pipedream does not support"),
        ({"layout": {"cp": 2}}, "layout.cp: pipedream does not support"),
        ({"model": {"experts": Experts(count=4)}}, "model.experts: pipedream does not support"),
    ],
)
def test_unsupported_combinations_are_refused_with_a_remedy(changes, message):
    run = GRID[0].run
    sections = {name: getattr(run, name).changed(**changes.get(name, {})) for name in ("model", "train", "layout")}
    misfit = find_stream_misfit(sections["model"], sections["train"], sections["layout"])
    assert str(misfit).startswith(message)
    assert ": set " in str(misfit) or "use " in str(misfit) or ": leave " in str(misfit)


def test_one_bit_adam_is_refused():
    train = GRID[0].run.train.changed(optimizer="onebit-adam", freeze_step=2, zero=0)
    assert "use schedule 1f1b" in str(find_optimizer_misfit(train))
    assert find_stream_misfit(GRID[0].run.model, GRID[0].run.train, GRID[0].run.layout) is None


@pytest.mark.parametrize("planted", DIVERGED, ids=lambda planted: "-".join(map(str, (planted[0].name, *planted[1:]))))
def test_the_step_that_diverged_is_named_whenever_all_ranks_learn_of_it(mpi_results, planted):
    case, *where, step = planted
    (line,) = [r for r in mpi_results(RANKS, WORKER) if r.get("diverges") == [case.name, *where, step]]
    state, reason, taken, not_finite = line["found"]
    stream = Stream.of(case.run.train, stages=case.layout.pp, micro_batches=case.micro_batches)
    assert (state, not_finite[0]) == ("nan", step)
    assert taken == min(step + stream.lag, STEPS)
    late = f", detected on all ranks after step {taken}" if taken > step else ""
    assert reason == (f"loss is not finite at step {step}{late}" if late else f"loss is nan at step {step}")
