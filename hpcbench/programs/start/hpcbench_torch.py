"""Module that PyTorch loads at the end of `import torch`, through hpcbench's entry point in group `torch.backends`.

An exception would break `import torch`. The build installs this module next to hpcbench's metadata, outside the
package. PyTorch can therefore import the module whenever it finds the entry point, even if the package itself cannot be
imported. The module imports nothing from the package unless the environment variable of `hpcbench run` is set.
"""

import os
import sys


def autoload() -> None:
    """Intercept PyTorch's calls if the environment variable of `hpcbench run` is set."""
    if not os.environ.get("HPCBENCH_TORCH"):
        return
    try:
        from hpcbench.programs.autoload import autoload as intercept

        intercept()
    except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the program must run
        print(f"hpcbench: PyTorch's calls are not intercepted: {type(error).__name__}: {error}", file=sys.stderr)
