"""Hook that runs at the end of `import torch` under `hpcbench run`.

start/hpcbench_torch.py and start/sitecustomize.py call this hook. An exception would break `import torch`, so the hook
never raises one. Without the kernels, the program runs normally, and `hpcbench run` reports that no rank has written
counts.
"""

import os
import sys

_started: list[object] = []


def autoload() -> None:
    """Install the kernels once per process if the environment variable is set."""
    text = os.environ.get("HPCBENCH_TORCH")  # a literal, so that programs without this variable import nothing else
    if not text or _started:
        return
    _started.append(text)
    try:
        from hpcbench.contract.interpose import Interposition
        from hpcbench.programs.intercept import start

        _started.append(start(Interposition.model_validate_json(text)))
    except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the program must run
        print(f"hpcbench: PyTorch's calls are not intercepted: {type(error).__name__}: {error}", file=sys.stderr)
