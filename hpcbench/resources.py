"""Locations of templates, sites, presets, and kernel sources, in a checkout or wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Return the directory of data files with this name.

    Parameters
    ----------
    name
        ``templates``, ``sites``, ``studies``, ``kernels`` or ``results/published``.

    Raises
    ------
    FileNotFoundError
        The directory is missing from the installation.
    """
    checkout = _PACKAGE.parent
    candidates = [checkout / name] if (checkout / "pyproject.toml").is_file() else []
    candidates.append(_PACKAGE / "_data" / name)
    for path in candidates:
        if path.is_dir():
            return path
    raise FileNotFoundError(f"hpcbench is installed without its directory {name}: reinstall the package")
