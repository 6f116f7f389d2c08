"""Tests of gathers that send differences of weights."""

from pathlib import Path

import pytest

from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import Model
from hpcbench.predict.memory import predict_memory
from hpcbench.predict.workload import Workload, make_train

WORKER = Path(__file__).with_name("weight_differences_worker.py")
TRAIN = make_train(global_batch=8, micro_batch=1, seq_len=512, zero=1, precision="fp32")
GATHERS = "ZERO STEP PARAM"


@pytest.fixture(scope="module")
def reports(mpi_results):
    """Return the results of both ranks by test."""
    lines = mpi_results(2, WORKER, "trained", "recursion")
    return {name: [line for line in lines if line["test"] == name] for name in {line["test"] for line in lines}}


def test_differences_have_the_bytes_of_weights_and_a_fraction_of_the_error(reports):
    assert len(reports["trained"]) == 6
    for result in reports["trained"]:
        plain, differences = result["sent"]
        assert [sent[GATHERS] for sent in differences] == [sent[GATHERS] for sent in plain]
        for sent, predicted in zip(differences, result["predicted"], strict=True):
            assert {name: message for name, (message, _) in sent.items()} == predicted
        of_weights, of_differences = result["errors"]
        assert of_weights > 0.05
        assert of_differences < of_weights / 10


def assert_follows_model(results):
    """Weights match the recursion bitwise, are identical on both replicas, and do not drift from the masters."""
    assert len(results) == 2 and len({result["digest"] for result in results}) == 1
    for result in results:
        assert result["same"]
        assert max(result["errors"]) < 5e-3
        assert max(result["errors"][-5:]) < 1.5 * max(result["errors"][:10])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_follow_the_recursion(reports, dtype):
    assert_follows_model([r for r in reports["recursion"] if r["fault"] is None and r["dtype"] == dtype])


@pytest.mark.parametrize("fault", ["reference_not_updated", "exact_at_the_owner", "errors_accumulate"])
def test_planted_fault_of_differences_is_detected(reports, fault):
    with pytest.raises(AssertionError):
        assert_follows_model([r for r in reports["recursion"] if r["fault"] == fault])


def test_memory_model_counts_the_differences_of_the_pieces():
    def peak(**rule):
        scheme = NamedScheme(name="s", rules=[Rule(dimension="ZERO", codec="int4", **rule)])
        workload = Workload(Model(layers=8, hidden=1024, heads=16, vocab=50304), TRAIN, Layout(dp=4), 1, scheme=scheme)
        return predict_memory(workload, None).peaks

    plain, differences = peak(), peak(differences=True)
    pieces = plain["after reduction"]["weights"] / 4
    for name, kinds in plain.items():
        more = differences[name]["transient"] - kinds["transient"]
        assert more == (pieces if name == "after reduction" else 0)
        assert differences[name]["weights"] == kinds["weights"], "the weights are the reference"
