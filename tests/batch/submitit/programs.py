"""Programs on PATH that record their calls and print predefined answers."""

import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

PROGRAM = """\
#!{python} -ES
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
name = os.path.basename(__file__)
with open(os.path.join(here, name + ".calls"), "a") as calls:
    call = dict(argv=sys.argv[1:], stdin=sys.stdin.read(), env=dict(os.environ), cwd=os.getcwd())
    calls.write(json.dumps(call) + "\\n")
path = os.path.join(here, name + ".answers")
answers = json.load(open(path)) if os.path.exists(path) else []
for k, answer in enumerate(answers):
    if all(word in sys.argv[1:] or word in " ".join(sys.argv[1:]) for word in answer["when"]):
        if answer["times"] is not None:
            answer["times"] -= 1
            if answer["times"] == 0:
                del answers[k]
            json.dump(answers, open(path, "w"))
        time.sleep(answer["sleep"])
        sys.stdout.write(answer["out"])
        sys.stderr.write(answer["err"])
        sys.exit(answer["status"])
sys.exit("no answer was prepared for " + " ".join(sys.argv))
"""


class Programs:
    """A directory of programs that record their calls."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)

    def answer(
        self,
        name: str,
        out: str = "",
        err: str = "",
        status: int = 0,
        *,
        when: tuple[str, ...] = (),
        times: int | None = None,
        sleep: float = 0.0,
    ) -> None:
        """Set the program's answer to calls whose arguments contain these words. The first matching answer is used."""
        path = self.directory / name
        path.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
        path.chmod(0o755)
        answers = self.directory / f"{name}.answers"
        recorded = json.loads(answers.read_text(encoding="utf-8")) if answers.exists() else []
        recorded.append({"out": out, "err": err, "status": status, "when": when, "times": times, "sleep": sleep})
        answers.write_text(json.dumps(recorded), encoding="utf-8")

    def forget(self, name: str) -> None:
        """Remove a program's answers and recorded calls."""
        for suffix in ("answers", "calls"):
            (self.directory / f"{name}.{suffix}").unlink(missing_ok=True)

    def calls(self, name: str) -> list[dict[str, Any]]:
        """Return the calls of a program: argv, stdin, env and cwd."""
        path = self.directory / f"{name}.calls"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


LSF = """\
#!{python} -ES
import json, os, re, shlex, signal, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
name = os.path.basename(__file__)
argv = sys.argv[1:]
stdin = sys.stdin.read() if name == "bsub" else ""
with open(os.path.join(here, name + ".calls"), "a") as calls:
    calls.write(json.dumps(dict(argv=argv, stdin=stdin, env=dict(os.environ), cwd=os.getcwd())) + "\\n")
jobs = os.path.join(here, "jobs")
os.makedirs(jobs, exist_ok=True)
def put(id, **more):
    path = os.path.join(jobs, id)
    job = dict(json.load(open(path)) if os.path.exists(path) else {{}}, **more)
    with open(path + ".new", "w") as out:
        json.dump(job, out)
    os.replace(path + ".new", path)
def run(id):
    number, _, index = id.rstrip("]").partition("[")
    env = dict(os.environ, LSB_JOBID=number, LSB_JOBINDEX=index or "0", LSB_MCPU_HOSTS="n1 2")
    script = os.path.join(here, number + ".sh")
    while True:
        job = subprocess.Popen(["bash", script], env=env, start_new_session=True, stdin=subprocess.DEVNULL)
        put(id, stat="RUN", pid=job.pid, requeue=False)
        status = job.wait()
        requeue = json.load(open(os.path.join(jobs, id))).get("requeue")
        if not requeue:
            break
    put(id, stat="EXIT" if status else "DONE", code=128 - status if status < 0 else status)
if name == "bsub":
    text = stdin or open(argv[-1]).read()
    options = [word for line in text.splitlines() if line.startswith("#BSUB ") for word in shlex.split(line[6:])]
    options += argv
    names = [options[k + 1] for k, word in enumerate(options) if word == "-J"]
    number = str(10000000 + len([x for x in os.listdir(here) if x.endswith(".sh")]) + 1)
    with open(os.path.join(here, number + ".sh"), "w") as out:
        out.write(text)
    span = re.search(r"\\[1-(\\d+)\\]", names[-1])
    ids = [f"{{number}}[{{k + 1}}]" for k in range(int(span[1]))] if span else [number]
    for id in ids:
        put(id, stat="PEND")
    print("A banner of the site\\nJob <%s> is submitted to queue <normal>." % number, flush=True)
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for id in ids:
            if os.fork() == 0:
                run(id)
                os._exit(0)
        os._exit(0)
elif name == "bjobs":
    fields = argv[argv.index("-o") + 1].split()[:-1]
    wanted = [word for word in argv if word.isdigit()]
    print("^".join(field.upper() for field in fields))
    for id in sorted(os.listdir(jobs)):
        number, _, index = id.rstrip("]").partition("[")
        if number in wanted and not id.endswith(".new"):
            job = json.load(open(os.path.join(jobs, id)))
            row = dict(jobid=number, jobindex=index or "0", stat=job["stat"], exit_code=str(job.get("code") or "-"))
            print("^".join(row.get(field, "-") for field in fields))
    sys.exit(255)
elif name in ("bkill", "brequeue"):
    number = signal.SIGKILL
    if "-s" in argv:
        number = getattr(signal, "SIG" + argv[argv.index("-s") + 1])
    job = json.load(open(os.path.join(jobs, argv[-1])))
    if name == "brequeue":
        put(argv[-1], requeue=True, stat="PEND")
    os.killpg(job["pid"], number)
    print("Job <%s> is being terminated" % argv[-1])
"""


def small_lsf(programs: Programs) -> None:
    """Add fakes of the LSF programs that submitit uses. They run jobs immediately on this machine."""
    for name in ("bsub", "bjobs", "bkill", "brequeue"):
        path = programs.directory / name
        path.write_text(textwrap.dedent(LSF).format(python=sys.executable), encoding="utf-8")
        path.chmod(0o755)


def end_jobs(programs: Programs) -> None:
    """Kill all processes of the small fake LSF."""
    for path in (programs.directory / "jobs").glob("*[0-9]*"):
        pid = json.loads(path.read_text(encoding="utf-8")).get("pid") if path.suffix != ".new" else None
        if pid:
            try:
                os.killpg(pid, 9)
            except ProcessLookupError:
                continue
