"""Tests of the event that a run with sparse weights writes after its last step."""

import pytest
from test_run_loop import RUN, logged_with, run_of

from hpcbench.features.prune.observer import CountedZeros
from hpcbench.features.prune.settings import Prune
from hpcbench.train import text
from hpcbench.train.corpus import Corpus


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return text.load(RUN.data, RUN.train.seq_len)


def test_a_run_counts_the_zeros_of_each_parameter(corpus: Corpus) -> None:
    trainer = run_of(corpus, prune=Prune(pattern="unstructured", sparsity=0.25, begin=2))
    event = logged_with(trainer, observers=[CountedZeros(trainer)])["sparsity"]
    assert (event["pattern"], event["updates"]) == ("unstructured", 4)
    assert [part["part"] for part in event["parts"]] == [
        f"blocks.0.{name}.weight" for name in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    ]
    assert all(part["zeros"] == part["weights"] // 4 > 0 for part in event["parts"])


def test_a_run_with_dense_weights_has_no_such_event(corpus: Corpus) -> None:
    trainer = run_of(corpus)
    assert "sparsity" not in logged_with(trainer, observers=[CountedZeros(trainer)])
