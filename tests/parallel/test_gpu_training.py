"""Tests that training gives the same results on GPUs as on the CPU, and that only wire bytes pass through the host.

The tests run on an emulated device on any machine. ``pytest -m gpu tests/parallel`` runs the tests on a real GPU.
"""

from pathlib import Path

import pytest
from mpi4py import MPI
from runs import SCHEMES, run_of

from hpcbench.codecs.device import cuda
from hpcbench.contract.layout import Layout
from hpcbench.contract.rule import Rule
from hpcbench.contract.scheme import NamedScheme
from hpcbench.contract.training import CommPrecision
from hpcbench.errors import UserError
from hpcbench.train import gpu

WORKER = Path(__file__).with_name("gpu_training_worker.py")

try:
    cuda()
    WHY_NOT = ""
except (ImportError, RuntimeError) as error:
    WHY_NOT = str(error)


@pytest.fixture(scope="session")
def settings(mpi_results):
    """Return the worker's results by setting."""
    results = mpi_results(2, WORKER, "disguised")
    return {result.pop("setting"): result for result in results}


def test_losses_weights_residuals_and_bytes_are_those_of_the_cpu(settings):
    assert len(settings) == 11
    differs = {name: [rank["differs"] for rank in result["ranks"]] for name, result in settings.items()}
    assert all(differs.pop("planted")), "a missing wait is detected"
    assert differs == {name: [[], []] for name in differs}


def test_no_vector_of_the_host_is_sent(settings):
    for name, result in settings.items():
        for rank in result["ranks"] if name != "planted" else ():
            assert rank["largest"] < rank["smallest"], name  # scalar sums are allowed, but buckets are not


def test_mpi_is_given_pinned_copies_or_pointers(settings):
    for name, result in settings.items():
        for rank in result["ranks"] if name != "planted" else ():
            assert (rank["staged"] == 0) == result["aware"], name
            coded = not name.startswith("native")
            if name != "halves in the baseline":  # with every transport
                assert (rank["elsewhere"] > 0) == coded, name  # samples of collectives
            assert (rank["buffers"] > 0) == coded, name


def test_settings_for_the_cpu_only_are_refused_in_one_line():
    run = run_of("neox", Layout(dp=2), precision="fp32").changed(device="cuda")
    assert gpu.refusal(run) is None
    for name in ("fp32", "bf16", "fp16"):
        messages = CommPrecision(activations=name, gradients=name, parameters=name)
        assert gpu.refusal(run.changed(train=run.train.changed(comm_precision=messages))) is None
    sums = run.changed(scheme=NamedScheme(name="sums", algorithm="homomorphic", default="int8:256"))
    assert "scheme sums: algorithm homomorphic sums" in gpu.refusal(sums)


@pytest.mark.parametrize("setting", [True, False])
def test_the_site_decides_whether_mpi_is_given_pointers(setting):
    run = run_of("neox", Layout()).changed(gpu_aware_mpi=setting)
    assert gpu.awareness(MPI.COMM_SELF, run) is None
    assert bool(gpu.awareness(MPI.COMM_SELF, run.changed(device="cuda"))) == setting


@pytest.mark.parametrize("why", [ImportError("codecs on a GPU need CuPy: pip install it"), RuntimeError("no GPU")])
def test_without_cupy_or_a_gpu_a_run_ends_with_a_message(monkeypatch, why):
    def cuda():
        raise why

    monkeypatch.setattr(gpu, "cuda", cuda)
    run = run_of("neox", Layout(dp=2))
    gpu.check(run)
    with pytest.raises(UserError, match=f"device cuda: {why}") as raised:
        gpu.check(run.changed(device="cuda"))
    assert "\n" not in str(raised.value)


def test_a_codec_without_kernels_is_refused(monkeypatch):
    plain = gpu.get_codec
    monkeypatch.setattr(gpu, "get_codec", lambda name: object() if name == "zfp:8" else plain(name))
    scheme = NamedScheme(name="mixed", algorithm="encoded", default="none", rules=[Rule(dimension="DP", codec="zfp:8")])
    run = run_of("neox", Layout(dp=2)).changed(scheme=scheme, device="cuda")
    assert "codec zfp:8 has no kernels for a GPU" in gpu.refusal(run)


def check(result, rel):
    """Check that a training run of the worker on a device equals the CPU run."""
    cpu, gpu = result["cpu"], result["gpu"]
    assert result["agree"], result["scheme"]
    assert gpu["losses"] == pytest.approx(cpu["losses"], rel=rel), result["scheme"]
    assert [sent for sent, _ in gpu["bytes"]] == [sent for sent, _ in cpu["bytes"]], result["scheme"]
    assert result["memory"]["host_bytes"] > 0
    residuals = result["scheme"] in ("sign-feedback", "onebit", "residuals", "halves")  # a lossless codec leaves none
    assert ("device_residuals_bytes" in result["memory"]) == residuals
    assert "host_residuals_bytes" not in result["memory"]


@pytest.mark.gpu
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_real_gpu_trains_like_the_cpu(mpi_results):
    results = mpi_results(4, WORKER, "on_gpu")
    assert len(results) == 2 * (len(SCHEMES) + 1 + 2)
    for result in results:
        check(result, 1e-12 if result["precision"] == "fp64" else 2e-3)
        assert result["memory"]["device_bytes"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_real_gpu_trains_like_the_cpu_in_every_setting(mpi_results):
    """The settings include offload, and messages in bf16 and fp16."""
    results = mpi_results(2, WORKER, "settings_on_gpu")
    assert len(results) == 10
    for result in results:
        check(result, 1e-2 if result["precision"] == "bf16" else 2e-3)


@pytest.mark.long
def test_noise_changes_the_losses_of_1_bit_adam_unless_eps_bounds_it(mpi_results):
    """Devices round differently. With the default `eps`, noise alone could exceed the bound of the tests above."""
    default, bounded = (
        max(abs(a - b) / b for a, b in zip(result["gpu"]["losses"], result["cpu"]["losses"], strict=True))
        for result in mpi_results(4, WORKER, "noise")
    )
    assert bounded < 1e-5 < 1e-4 < default


@pytest.mark.parametrize(
    "schemes",
    [["naive-int8"], pytest.param(["naive-mpc", "onebit"], marks=pytest.mark.long)],
    ids=["a codec", "lossless and 1-bit Adam"],
)
def test_a_standin_for_cupy_trains_like_the_cpu(mpi_results, need, schemes):
    """Tensors are in host memory. CuPy's streams, events, memory and kernels are emulated."""
    need(None if WHY_NOT else "a GPU is here: the test before runs on it")
    results = mpi_results(4, WORKER, "on_standin", *schemes)
    assert len(results) == 2 * (len(schemes) + len({"baseline", "identity"} & set(schemes)))
    for result in results:
        check(result, 0)
