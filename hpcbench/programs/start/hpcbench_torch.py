"""Entry point that PyTorch calls at the end of `import torch`, by hpcbench's entry point of the group `torch.backends`.

An exception here would break `import torch`. The build installs this module next to hpcbench's metadata, outside the
package: where PyTorch sees the entry point, it can import the module, even if the package itself cannot be imported. So
the module imports nothing of the package before `hpcbench run` asks for it by a variable.
"""

import os
import sys


def autoload() -> None:
    """Have PyTorch's calls intercepted where `hpcbench run` has set its variable."""
    if not os.environ.get("HPCBENCH_TORCH"):
        return
    try:
        from hpcbench.programs.autoload import autoload as intercept

        intercept()
    except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the program must run
        print(f"hpcbench: PyTorch's calls are left alone: {type(error).__name__}: {error}", file=sys.stderr)
