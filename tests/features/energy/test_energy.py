"""Tests of the energy of a run's steps, measured with emulated RAPL, Cray and NVML counters."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from mpi4py import MPI
from test_run_loop import RUN, logged_with, run_of

from hpcbench.contract.events import Rank, RankGpu
from hpcbench.features.energy.events import EnergyCounter
from hpcbench.features.energy.observer import energy, meter
from hpcbench.features.energy.observer.counters import NoCounterError, find_rapl_counters, open_cray_counter
from hpcbench.features.energy.observer.energy import EnergyMeter, sum_counters
from hpcbench.features.energy.observer.meter import Meter
from hpcbench.features.energy.observer.nvml import open_gpu_counter
from hpcbench.train import text

# ---------------------------------------------------------------- emulated counters


class Zone:
    """An emulated zone in the kernel's powercap directory."""

    def __init__(self, path: Path, name: str, joules: float = 0.0, span: float = 262_143.0) -> None:
        self.path, self.span = path, span
        path.mkdir(parents=True)
        (path / "name").write_text(f"{name}\n")
        (path / "max_energy_range_uj").write_text(f"{round(span * 1e6)}\n")
        self.joules = 0.0
        self.consume(joules)

    def consume(self, joules: float) -> None:
        """Add `joules` to the counter, which wraps around at `span` like the kernel's counter."""
        self.joules = (self.joules + joules) % self.span
        (self.path / "energy_uj").write_text(f"{round(self.joules * 1e6)}\n")


class Counter:
    """An emulated counter of a device with constant power."""

    source, name, part, refresh = "rapl", "package-0", "processor", 1e-3

    def __init__(self, now: list[float], watts: float, span: float | None = None, begin: float = 0.0) -> None:
        self._now, self._watts, self.span, self._begin = now, watts, span, begin
        self.readings = 0

    def read(self) -> float:
        self.readings += 1
        joules = self._begin + self._watts * self._now[0]
        return joules % self.span if self.span else joules


class Nvml:
    """An emulated NVML with two GPUs. The second GPU has no counter."""

    def __init__(self) -> None:
        self.millijoules = 5_000_000
        self.requested: list[str] = []

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:  # noqa: N802
        self.requested.append(name)
        if name not in ("GPU-a", "GPU-b"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return name

    def nvmlDeviceGetHandleByPciBusId(self, name: str) -> str:  # noqa: N802
        self.requested.append(name)
        return "GPU-a"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if handle != "GPU-a":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.millijoules


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """Replace the functions of NVML with emulated functions."""
    library = Nvml()
    for name in (name for name in dir(library) if name.startswith("nvml")):
        monkeypatch.setattr(pynvml, name, getattr(library, name))
    return library


def make_ranks(*hosts: str, gpus: tuple[str | None, ...] = (), cores: int = 8, host_cores: int = 8) -> list[Rank]:
    """Create one rank per host name, each with an equal share of the host's cores."""
    ranks = []
    for number, host in enumerate(hosts):
        share = cores // hosts.count(host)
        local_rank = hosts[:number].count(host)
        gpu = {"uuid": gpus[number], "number": 0} if gpus and gpus[number] else None
        data = {"rank": number, "host": host, "cores": list(range(local_rank * share, (local_rank + 1) * share))}
        ranks.append(Rank.read({**data, "host_cores": host_cores, **({"gpu": gpu} if gpu else {})}))
    return ranks


# ---------------------------------------------------------------- counters


def test_only_packages_and_their_memory_are_read(tmp_path: Path) -> None:
    Zone(tmp_path / "intel-rapl:0", "package-0", 10)
    Zone(tmp_path / "intel-rapl:0:0", "core", 7)
    Zone(tmp_path / "intel-rapl:0:1", "dram", 3)
    Zone(tmp_path / "intel-rapl:1", "psys", 99)
    Zone(tmp_path / "intel-rapl-mmio:0", "package-0", 10)
    counters = {counter.name: counter for counter in find_rapl_counters(tmp_path)}
    assert {name: counter.read() for name, counter in counters.items()} == {"package-0": 10, "dram of 0": 3}
    assert counters["package-0"].span == 262_143


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "does not contain a counter for a processor package"),
        (lambda path: (path / "energy_uj").unlink(), "energy_uj: No such file"),
        (lambda path: (path / "energy_uj").write_text("much\n"), "does not contain a number"),
    ],
)
def test_an_unreadable_counter_is_reported(tmp_path: Path, prepare: Any, message: str) -> None:
    root = tmp_path / "powercap"
    root.mkdir()
    zone = Zone(root / "intel-rapl:0", "package-0" if "counter for a processor package" not in message else "core")
    prepare(zone.path)
    with pytest.raises(NoCounterError, match=message):
        list(find_rapl_counters(root))


def test_a_cray_node_has_one_counter(tmp_path: Path) -> None:
    (tmp_path / "energy").write_text("47311 J 1411166093476 us\n")
    counter = open_cray_counter(tmp_path)
    assert (counter.read(), counter.part, counter.span) == (47311, "node", None)
    with pytest.raises(NoCounterError, match=r"energy: No such file"):
        open_cray_counter(tmp_path / "none")


def make_rank_gpu(**fields: Any) -> RankGpu:
    return RankGpu.read(fields)


def test_a_gpu_is_identified_by_its_uuid(nvml: Nvml) -> None:
    counter = open_gpu_counter(make_rank_gpu(uuid="a"))
    assert counter.read() == 5000 and nvml.requested == ["GPU-a"]
    nvml.millijoules += 1500
    assert counter.read() == 5001.5
    for uuid, message in (("b", "NVML reports: Not Supported"), ("c", "GPU-c: NVML reports: Not Found")):
        with pytest.raises(NoCounterError, match=message):
            open_gpu_counter(make_rank_gpu(uuid=uuid))


def test_a_gpu_without_a_uuid_is_identified_by_its_pci_address(nvml: Nvml) -> None:
    assert open_gpu_counter(make_rank_gpu(pci="0000:1A:00")).read() == 5000 and nvml.requested == ["0000:1A:00.0"]
    with pytest.raises(NoCounterError, match="PyTorch reports neither a UUID nor a PCI address"):
        open_gpu_counter(make_rank_gpu(number=0))


def fail_to_load(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.mark.parametrize(("module", "message"), [(None, "pip install nvidia-ml-py"), (pynvml, "Library Not Found")])
def test_without_pynvml_or_driver_there_is_no_counter(
    monkeypatch: pytest.MonkeyPatch, module: Any, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(pynvml, "CDLL", fail_to_load)
    with pytest.raises(NoCounterError, match=message):
        open_gpu_counter(make_rank_gpu(uuid="a"))


# ---------------------------------------------------------------- the meter


def meter_steps(counter: Counter, now: list[float], seconds: float, step_seconds: float) -> meter.Metered:
    """Measure the energy of steps of `step_seconds` each, with a total duration of `seconds`."""
    meter = Meter([counter], clock=lambda: now[0])
    meter.resume()
    for _ in range(round(seconds / step_seconds)):
        now[0] += step_seconds
        meter.tick()
    meter.pause()
    assert meter.seconds == pytest.approx(seconds)
    return meter.metered[0]


@pytest.mark.parametrize("begin", [0.0, 60_000.0])
def test_wrap_arounds_of_a_counter_are_counted(begin: float) -> None:
    """At 300 W, a counter with a range of 65 kJ wraps around every 218 s."""
    now = [0.0]
    counted = meter_steps(Counter(now, 300.0, 65_536.0, begin), now, 1000.0, 0.5)
    assert counted.problem == "" and counted.joules == pytest.approx(300_000)


def test_steps_longer_than_a_wrap_around_have_no_joules() -> None:
    now = [0.0]
    counted = meter_steps(Counter(now, 300.0, 65_536.0), now, 1000.0, 100.0)
    assert (
        counted.problem
        == "the counter may have wrapped around unnoticed: its range is 65536 J, but the counter was not read for 100 s"
    )


def test_a_counter_that_goes_back_has_no_joules() -> None:
    now = [0.0]
    counter = Counter(now, 300.0, begin=1000.0)
    meter = Meter([counter], clock=lambda: now[0])
    meter.resume()
    counter._begin, now[0] = 0.0, 1.0
    meter.pause()
    assert meter.metered[0].problem == "the counter decreased from 1000 J to 300 J"


def test_time_between_steps_is_left_out_and_readings_are_few() -> None:
    now = [0.0]
    counter = Counter(now, 100.0)
    meter = Meter([counter], clock=lambda: now[0])
    for _ in range(3):
        meter.resume()
        for _ in range(40):
            now[0] += 0.1
            meter.tick()
        meter.pause()
        now[0] += 50.0  # an evaluation
    assert meter.metered[0].joules == pytest.approx(3 * 4.0 * 100) and meter.seconds == pytest.approx(12)
    assert counter.readings == 6


# ---------------------------------------------------------------- all ranks


def make_meter(rank: int, ranks: list[Rank], tmp_path: Path) -> EnergyMeter:
    comm = SimpleNamespace(rank=rank)
    host = tmp_path / str(ranks[rank].host)
    return EnergyMeter(ranks, comm, first=1, powercap=host, pm_counters=host / "cray")  # type: ignore[arg-type]


@pytest.mark.usefixtures("nvml")
def test_each_counter_is_read_by_one_rank(tmp_path: Path) -> None:
    for host in ("n0", "n1"):
        Zone(tmp_path / host / "intel-rapl:0", "package-0")
    ranks = make_ranks("n0", "n0", "n1", "n1", gpus=("a", "a", "a", "b"))
    meters = [make_meter(rank, ranks, tmp_path) for rank in range(4)]
    names = [[metered.counter.name for metered in energy_meter.meter.metered] for energy_meter in meters]
    assert names == [["package-0", "GPU-a"], [], ["package-0", "GPU-a"], []]
    assert "Not Supported" in meters[3].absent["nvml"] and "cray" in meters[0].absent and meters[1].absent == {}


def make_report(
    host: str, *counters: tuple[str, str, float | None], owned: int | None = None, **absent: str
) -> dict[str, Any]:
    counters_of_host = [
        EnergyCounter(host=host, source="x", name=name, part=part, joules=joules, refresh_s=0.1, problem=None)
        for part, name, joules in counters
    ]
    return {"host": host, "seconds": 10.0, "absent": absent, "owned": owned, "counters": counters_of_host}


NODE, CPU, GPU = ("node", "node", 900.0), ("processor", "package-0", 100.0), ("gpu", "GPU-a", 400.0)


@pytest.mark.parametrize(
    ("counters", "gpus", "scope", "joules"),
    [
        ((NODE, CPU, GPU), ("a", "b"), "nodes", 1800.0),
        ((CPU, GPU), ("a", "b"), "GPUs and processors", 1000.0),
        ((GPU,), ("a", "b"), "GPUs", 800.0),
        ((CPU,), (None, None), "processors", 200.0),
        ((CPU,), ("a", "b"), None, None),
        ((), (None, None), None, None),
    ],
)
def test_the_widest_complete_sum_counts(counters: Any, gpus: Any, scope: str | None, joules: float | None) -> None:
    ranks = make_ranks("n0", "n1", gpus=gpus)
    summed = sum_counters(ranks, [make_report("n0", *counters), make_report("n1", *counters)], from_step=3, to_step=12)
    assert (summed.scope, summed.joules, summed.seconds) == (scope, joules, 10.0)
    assert len(summed.counters or ()) == 2 * len(counters)


def test_there_is_no_sum_if_one_host_has_no_counter() -> None:
    ranks = make_ranks("n0", "n1", "n2")
    missing = "/sys/class/powercap/intel-rapl:0/energy_uj: Permission denied"
    summed = sum_counters(
        ranks,
        [make_report("n0", CPU), make_report("n1", rapl=missing), make_report("n2", rapl=missing)],
        from_step=1,
        to_step=2,
    )
    assert (summed.scope, summed.joules, summed.processor_joules) == (None, None, None)
    assert summed.problems == (f"n1 and 1 more: no rapl counter: {missing}",)


def test_counters_that_include_other_jobs_are_called_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    half = make_ranks("n0", "n1", cores=4)
    summed = sum_counters(half, [make_report("n0", CPU), make_report("n1", CPU)], from_step=1, to_step=2)
    problem = "has 4 of 8 cores, so the counters may include the energy of other jobs"
    assert summed.wide == (f"n0 and 1 more: the run {problem}",) and summed.joules == 200
    fully_owned_host = [make_report("n0", CPU, owned=8), make_report("n1", CPU, owned=4)]
    assert sum_counters(half, fully_owned_host, from_step=1, to_step=2).wide == (f"n1: the job {problem}",)
    monkeypatch.setattr(energy, "_WIDE", 0.4)
    assert sum_counters(half, [make_report("n0", CPU), make_report("n1", CPU)], from_step=1, to_step=2).wide == ()


def test_a_run_meters_the_steps_that_count(tmp_path: Path) -> None:
    """Evaluations and warm-up steps also consume energy, but are excluded."""
    zone = Zone(tmp_path / "here" / "intel-rapl:0", "package-0")
    trainer = run_of(text.load(RUN.data, RUN.train.seq_len), steps=6, warmup_steps=2, eval_every=2)
    step, evaluate = trainer.step, trainer.evaluate

    def add_energy(joules: float, call: Any) -> Any:
        def consume_and_call(*arguments: Any) -> Any:
            zone.consume(joules)
            return call(*arguments)

        return consume_and_call

    trainer.step, trainer.evaluate = add_energy(5.0, step), add_energy(1000.0, evaluate)  # type: ignore[method-assign]
    ranks = make_ranks("here")
    energy_meter = EnergyMeter(ranks, MPI.COMM_SELF, first=3, powercap=tmp_path / "here", pm_counters=tmp_path)
    event = logged_with(trainer, observers=[energy_meter])["energy"]
    assert (event["from_step"], event["to_step"], event["scope"]) == (3, 6, "processors")
    assert event["joules"] == event["processor_joules"] == 4 * 5.0
    assert event["counters"][0]["name"] == "package-0" and event["problems"] == [
        f"here: no cray counter: {tmp_path / 'energy'}: No such file or directory"
    ]
