"""The end of `import torch`, where `hpcbench run` has set its variable.

The entry point in start/hpcbench_torch.py comes here, and so does start/sitecustomize.py. An exception would break
`import torch`, so there is none: without the kernels the program runs as ever, and `hpcbench run` says that no rank has
reported.
"""

import os
import sys

_started: list[object] = []


def autoload() -> None:
    """Install the kernels if the variable is set, once in a process."""
    text = os.environ.get("HPCBENCH_TORCH")  # the literal name, so that other programs import nothing more
    if not text or _started:
        return
    _started.append(text)
    try:
        from hpcbench.contract.interpose import Interposition
        from hpcbench.programs.intercept import start

        _started.append(start(Interposition.model_validate_json(text)))
    except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the program must run
        print(f"hpcbench: PyTorch's calls are left alone: {type(error).__name__}: {error}", file=sys.stderr)
