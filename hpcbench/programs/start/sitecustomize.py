"""Module that Python loads on startup if `hpcbench run` has put this directory first in PYTHONPATH.

The module serves programs in environments where PyTorch cannot find hpcbench's entry point. Nothing is imported from
hpcbench until torch has been imported completely. The module also runs the site's own module of the same name.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would be one more import


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Import hook for the end of torch's import. Before this point, torch is incomplete."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find torch with the other finders, and wrap the execution of its module."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            try:
                from hpcbench.programs.autoload import autoload
            except ImportError:
                return  # another environment, without hpcbench
            autoload()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _chain() -> None:
    """Run the `sitecustomize` module that this module shadows."""
    here, path = sys.modules.pop("sitecustomize", None), sys.path
    sys.path = [entry for entry in path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        pass
    finally:
        sys.path = path
        if here is not None:
            sys.modules.setdefault("sitecustomize", here)


if os.environ.get("HPCBENCH_TORCH"):
    sys.meta_path.insert(0, _AfterTorch())
_chain()
