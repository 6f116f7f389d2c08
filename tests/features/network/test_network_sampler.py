"""The process that samples counters while a program runs."""

import subprocess
import sys
import time
from pathlib import Path

from hpcbench.features.network.window import read_samples

PARENT = """\
import os, sys, time
from pathlib import Path
from hpcbench.features.network.sampler import start_sampler
start_sampler(Path(sys.argv[1]), os.getpid())
os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.8)"])
"""


def test_a_sampler_lives_as_long_as_the_program_and_holds_no_pipe(tmp_path: Path):
    """The pipe's end arrives with the program's end: a launcher that reads it does not wait for the sampler."""
    path = tmp_path / "here.jsonl"
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.read() == b""
    ended = time.time()
    assert process.wait() == 0
    deadline = time.monotonic() + 60
    while not (nodes := read_samples(tmp_path)) or nodes[0].last_time < ended - 0.5:
        assert time.monotonic() < deadline, "the end has no sample"
        time.sleep(0.05)
    size = -1
    while size != path.stat().st_size:  # no more samples once the program has ended
        assert time.monotonic() < deadline, "the sampler continues"
        size = path.stat().st_size
        time.sleep(0.6)
    assert len(read_samples(tmp_path)[0].times) >= 3


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
