"""Tests of the fake flux: directives as in RFC 36, durations, ids, states and results, and running jobs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Fake, FakeFlux
from fakes.flux.ids import format_id, parse_id
from fakes.state import DONE, EXITED, RUNNING

pytestmark = pytest.mark.long  # in `make test`, other tests submit through it

ASK = ("flux", "jobs", "-ano", "{id.dec} {name} {status} {result} {returncode}")


def submit(fake: Fake, script: str, *options: str) -> str:
    """Queue a script, and return its id as printed."""
    done = fake.run("flux", "batch", *options, stdin=script.encode())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("#flux: -N1\necho\n#flux: -n2", "line 4: orphan 'flux:' detected: directives disabled after line 2"),
        ("#flux: -N1\n# flux: -n2", "line 3: sentinel changed from '#flux:' to '# flux:'"),
        ("#flux: N1", "line 2: Unknown directive: N1"),
        ("#flux: --job-name='a", "line 2: --job-name='a: No closing quotation"),
        ("#flux: -N1 -t 01:00:00", "invalid Flux standard duration"),
        ("#flux: -N1 -t 4-00:30:00", "invalid Flux standard duration"),
        ("#flux: -t 10m", "At least one of --nslots or --nodes must be specified"),
        ("#flux: -N9", "unsatisfiable request"),
        ("#flux: -N1 -n1 -c41", "unsatisfiable request"),
        ("#flux: -N1 -n1 -g5", "unsatisfiable request"),
        ("#flux: -N1 -q gone", "Invalid queue 'gone' specified"),
        ("#flux: -N1 -q debug -t 2h", "requested duration exceeds policy limit for queue debug"),
        ("#flux: -N1 --dependency=afterok:123", "afterok: job 123 not found"),
        ("#flux: -N1 --dependency=done:1", 'dependency scheme "done" not supported'),
        ("#flux: -N1 --signal=@3y", "invalid Flux standard duration"),
        ("#flux: -N1 --tasks-per-node=4", "unrecognized arguments: --tasks-per-node=4"),
        ("#flux: -N1 --walltime=3", "unrecognized arguments: --walltime=3"),
    ],
)
def test_refusals(script: str, text: str) -> None:
    flux = FakeFlux()
    done = flux.run("flux", "batch", stdin=f"#!/bin/bash\n{script}\ntrue\n".encode())
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert text in done.stderr
    assert flux.jobs == []


def test_files_that_are_not_scripts_are_refused(tmp_path: Path) -> None:
    flux = FakeFlux()
    assert "does not appear to be a script" in flux.run("flux", "batch", "-N1", stdin=b"true\n").stderr
    assert "No such file or directory" in flux.run("flux", "batch", "-N1", str(tmp_path / "gone")).stderr


def test_directives_are_read_and_the_command_line_overrides_them() -> None:
    flux = FakeFlux()
    script = "#!/bin/bash\n\n# about it\n#flux: --nodes=2 --time-limit=360s # a comment\n\n"
    script += "# another\n#flux: # -N4\n#flux: --job-name='a b' --queue=debug --bank=x -o mpibind=off -S user.k=1\n"
    submit(flux, script)
    submit(flux, script, "--job-name=other", "-t", "1")
    first, second = flux.jobs
    assert (first.name, first.hosts, first.queue, first.account, first.limit) == ("a b", 2, "debug", "x", 360.0)
    assert (second.name, second.hosts, second.limit) == ("other", 2, 60.0)  # a bare number is minutes


@pytest.mark.parametrize(("text", "minutes"), [("90s", 1.5), ("2", 2.0), ("1.5h", 90.0), ("1d", 1440.0)])
def test_durations(text: str, minutes: float) -> None:
    flux = FakeFlux(minute=60.0)
    submit(flux, "#!/bin/bash\ntrue\n", "-N1", "-t", text)
    assert flux.jobs[0].limit == minutes * 60


def test_ids() -> None:
    examples = {0: "1", 57: "z", 1234: "NH", 6731191091817518: "uZZybuNNy", 2**64 - 1: "jpXCZedGfVQ"}
    for number, text in examples.items():
        assert parse_id(f"ƒ{text}") == parse_id(f"f{text}") == number
        assert format_id(number)[1:] == text
    assert parse_id("42") == 42
    with pytest.raises(ValueError, match="not a valid Flux jobid"):
        parse_id("job0")
    flux = FakeFlux()
    printed = submit(flux, "#!/bin/bash\ntrue\n", "-N1")
    assert printed.startswith("ƒ")
    ascii_ids = {**flux.environment, "FLUX_F58_FORCE_ASCII": "1"}
    done = flux.run("flux", "batch", "-N1", stdin=b"#!/bin/bash\ntrue\n", env=ascii_ids)
    assert done.stdout.startswith("f")
    assert [parse_id(printed), parse_id(done.stdout.strip())] == [job.id for job in flux.jobs]
    assert flux.run("flux", "job", "id", "--to=dec", printed).stdout == f"{flux.jobs[0].id}\n"


def test_states_and_results(fake_of: Callable[..., Fake]) -> None:
    flux = fake_of("flux", nodes=4, minute=1.0)
    for name, body in (("good", "true"), ("bad", "exit 3"), ("late", "sleep 60"), ("off", "sleep 60")):
        submit(flux, f"#!/bin/bash\n{body}\n", "-N1", f"--job-name={name}", *(["-t30s"] if name == "late" else []))
    off = flux.jobs[3]
    flux.wait_for(off.key, RUNNING)
    assert flux.run("flux", "cancel", "-m", "enough", str(off.id)).returncode == 0
    flux.wait()
    rows = [line.split(" ", 1)[1] for line in flux.run(*ASK).stdout.splitlines()]
    assert rows == [
        "off CANCELED CANCELED 143",
        "late TIMEOUT TIMEOUT 143",
        "bad FAILED FAILED 3",
        "good COMPLETED COMPLETED 0",
    ]
    notes = flux.run("flux", "jobs", "-ano", "{name}|{exception.type}|{exception.note}").stdout
    assert "late|timeout|resource allocation expired" in notes
    assert "off|cancel|enough" in notes
    done = flux.run("flux", "cancel", str(off.id))
    assert (done.returncode, done.stderr) == (1, f"flux-cancel: ERROR: {off.id}: job is inactive\n")


def test_listed_jobs(fake_of: Callable[..., Fake]) -> None:
    flux = fake_of("flux", nodes=1)
    submit(flux, "#!/bin/bash\ntrue\n", "-N1", "--job-name=first")
    flux.wait()
    submit(flux, "#!/bin/bash\nsleep 60\n", "-N1", "--job-name=second")
    submit(flux, "#!/bin/bash\ntrue\n", "-N1", "--job-name=third")
    submit(flux, "#!/bin/bash\ntrue\n", "-N1", "--job-name=fourth", f"--dependency=afterany:{flux.jobs[2].id}")
    flux.wait_for(flux.jobs[1].key, RUNNING)
    ask = ("flux", "jobs", "-no", "{name} {status}")
    assert flux.run(*ask).stdout.split("\n")[:3] == ["fourth DEPEND", "third SCHED", "second RUN"]
    assert flux.run(*ask, "--filter=running").stdout == "second RUN\n"
    assert flux.run(*ask, "--filter=completed").stdout == "first COMPLETED\n"
    assert flux.run(*ask, "-a", "--name=first").stdout == "first COMPLETED\n"
    done = flux.run(*ask, str(flux.jobs[0].id), "12345")
    assert (done.returncode, done.stdout, done.stderr) == (1, "first COMPLETED\n", "JobID 12345 unknown\n")
    header = flux.run("flux", "jobs", "-ao", "{id.dec:>14} {nodelist:h}").stdout.splitlines()[0]
    assert header == f"{'DEC':>14} NODELIST"
    assert "Unknown format field: colour" in flux.run("flux", "jobs", "-o", "{colour}").stderr


@pytest.mark.parametrize(
    ("scheme", "code", "runs"),
    [("afterok", 0, True), ("afterok", 2, False), ("afterany", 2, True), ("afternotok", 2, True)],
)
def test_dependencies(flux: Fake, scheme: str, code: int, runs: bool) -> None:
    first = submit(flux, f"#!/bin/bash\nsleep 0.2; exit {code}\n", "-N1")
    submit(flux, "#!/bin/bash\ntrue\n", "-N1", f"--dependency={scheme}:{first}")
    failed, two = flux.wait()
    assert (two.state == DONE) is runs
    if runs:
        assert two.started >= failed.ended
    else:
        answer = flux.run("flux", "jobs", "-no", "{status} {returncode} {exception.type}", str(two.id)).stdout
        assert answer == "FAILED -128 dependency\n"


def test_flux_run_starts_tasks(flux: Fake) -> None:
    say = "'echo $FLUX_TASK_RANK $FLUX_TASK_LOCAL_ID $CUDA_VISIBLE_DEVICES $HPCBENCH_FAKE_HOST'"
    script = f"""#!/bin/bash
#flux: -N2 --output=out.{{{{id}}}}
flux run -N2 -n4 -c20 -g2 -o gpu-affinity=per-task sh -c {say} > per-task
flux run --nodes=2 --tasks-per-node=2 --exclusive sh -c {say} > per-node
flux run -N2 -n4 -g1 -o cpu-affinity=per-task -o gpu-affinity=off sh -c {say} > off
flux run -n1 sh -c 'exit 6'; echo "$?" > status
flux resource list -s up -no {{nnodes}} > nodes
flux hostlist -e local > hosts
"""
    printed = submit(flux, script)
    flux.wait()
    outputs = {name: sorted(Path(name).read_text(encoding="utf-8").splitlines()) for name in ("per-task", "per-node")}
    assert outputs["per-task"] == ["0 0 0,1 node1", "1 1 2,3 node1", "2 0 0,1 node2", "3 1 2,3 node2"]
    assert outputs["per-node"] == [f"{k} {k % 2} 0,1,2,3 node{k // 2 + 1}" for k in range(4)]
    assert sorted(Path("off").read_text(encoding="utf-8").splitlines())[0] == "0 0 node1"
    texts = [Path(name).read_text(encoding="utf-8") for name in ("status", "nodes", "hosts")]
    assert texts == ["6\n", "2\n", "node1 node2\n"]
    assert Path(f"out.{printed}").read_text(encoding="utf-8") == ""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("flux run -N2 --tasks-per-node=2 -c2 true", "Per-resource options can't be used with per-task options."),
        ("flux run -n2 --gpus-per-node=2 true", "Per-resource options can't be used with per-task options."),
        ("flux run -N3 -n3 true", "unsatisfiable request"),
        ("flux run -N1 -n2 -c21 true", "unsatisfiable request"),
        ("flux run -N1 -t 00:10:00 true", "invalid Flux standard duration"),
        ("flux run -N1", "job command and arguments are missing"),
        ("flux run --ntasks-per-node=2 true", "unrecognized arguments: --ntasks-per-node=2"),
    ],
)
def test_flux_run_refuses(fake_of: Callable[..., Fake], line: str, text: str) -> None:
    flux = fake_of("flux", cores=40)
    submit(flux, f"#!/bin/bash\n{line} 2> said\n", "-N2")
    (job,) = flux.wait()
    assert job.state == EXITED
    assert text in Path("said").read_text(encoding="utf-8")


def test_outside_of_a_job() -> None:
    flux = FakeFlux()
    assert "Unable to connect to Flux" in flux.run("flux", "run", "-n1", "true").stderr
    assert flux.run("flux", "resource", "list", "-no", "{nnodes} {ngpus}").stdout == "4 16\n"


def test_signal_ahead_of_the_limit(flux: Fake) -> None:
    script = "#!/bin/bash\ntrap 'echo told > told; exit 0' USR1\nwhile :; do sleep 0.05; done\n"
    submit(flux, script, "-N1", "-t2m", "--signal=USR1@1m")
    (job,) = flux.wait()
    assert (job.state, job.exit) == (DONE, 0)
    assert Path("told").exists()
    assert job.ended - job.started >= 1.0


def test_it_identifies_itself_as_a_fake() -> None:
    flux = FakeFlux()
    assert "hpcbench's fake of flux-core" in flux.run("flux", "--version").stdout
    assert "hpcbench's fake of flux has no command 'kvs'" in flux.run("flux", "kvs").stderr
