"""Tests of the process that samples counters while a program runs."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from hpcbench.features.network.window import read_samples

PARENT = """\
import os, sys, time
from pathlib import Path
from hpcbench.features.network.sampler import start_sampler
start_sampler(Path(sys.argv[1]), os.getpid())
os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])
"""


def find_holders(stream: IO[bytes]) -> set[int]:
    """Return the IDs of other processes that have an end of a pipe open."""
    pipe = Path(f"/proc/self/fd/{stream.fileno()}").readlink()
    holders = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if descriptor.readlink() == pipe:
                holders.add(int(descriptor.parts[2]))
        except OSError:  # the process has exited
            continue
    return holders - {os.getpid()}


def test_a_sampler_lives_as_long_as_the_program_and_holds_no_pipe(tmp_path: Path):
    """A launcher reads a pipe until all writers have closed it, and must not wait for the sampler."""
    path = tmp_path / "here.jsonl"
    deadline = time.monotonic() + 60
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    while not path.exists() or len(read_samples(tmp_path)[0].times) < 3:
        assert time.monotonic() < deadline, "there are no samples"
        time.sleep(0.05)
    assert find_holders(process.stdout) == {process.pid}
    process.stdin.close()
    assert process.wait() == 0
    ended = time.time()
    while read_samples(tmp_path)[0].last_time < ended - 0.5:
        assert time.monotonic() < deadline, "the end has no sample"
        time.sleep(0.05)
    size = -1
    while size != path.stat().st_size:  # no samples are added after the program has ended
        assert time.monotonic() < deadline, "the sampler continues"
        size = path.stat().st_size
        time.sleep(0.6)


def test_a_program_that_has_ended_gets_one_sample(tmp_path: Path):
    code = (
        "import subprocess, sys\nfrom pathlib import Path\n"
        "from hpcbench.features.network.sampler import start_sampler\n"
        "done = subprocess.Popen(['true']); done.wait(); start_sampler(Path(sys.argv[1]), done.pid)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "here.jsonl")], check=True, timeout=60)
    deadline = time.monotonic() + 60
    while not (tmp_path / "here.jsonl").exists() or not read_samples(tmp_path)[0].times:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    assert len(read_samples(tmp_path)[0].times) == 1


def test_samples_have_the_links_between_gpus(tmp_path: Path):
    code = (
        "import subprocess, sys\nfrom pathlib import Path\n"
        "from hpcbench.features.network import sampler\n"
        "from hpcbench.features.network.counters import Reading\n"
        "from hpcbench.features.network.nvlink import NvLinks\n"
        "NvLinks.read = lambda self: {'gpu0': Reading('nvlink', 7, 9)}\n"
        "done = subprocess.Popen(['true']); done.wait(); sampler.start_sampler(Path(sys.argv[1]), done.pid)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "here.jsonl")], check=True, timeout=60)
    deadline = time.monotonic() + 60
    while not (tmp_path / "here.jsonl").exists() or not read_samples(tmp_path)[0].times:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kind, samples = read_samples(tmp_path)[0].devices["gpu0"]
    assert kind == "nvlink" and samples[0][1:] == (7, 9)
