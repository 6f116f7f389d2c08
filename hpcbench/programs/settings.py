"""The settings of `hpcbench run`: a scheme by name or from a file, and a groups file."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench.contract.interpose import Groups
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError
from hpcbench.study.find_scheme import NOTHING, find_scheme
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.yaml12 import read


def load_scheme(name: str) -> NamedScheme:
    """Return the scheme with a name, or the scheme in a file.

    Raises
    ------
    UserError
        There is no such scheme, or the file is wrong.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        document = read(path)
        try:
            entry = SchemeEntry.model_validate(document.data)
        except ValidationError as error:
            raise make_user_error(error, SchemeEntry, document.where) from None
        return _named(path.stem, entry)
    scheme, _ = find_scheme(name, {}, NOTHING, "--scheme")
    return _named(name, scheme)


def _named(name: str, entry: Any) -> NamedScheme:
    try:
        return NamedScheme(name=name, **entry.model_dump(exclude={"description", "system"}, exclude_unset=True))
    except ValidationError as error:
        raise UserError(f"--scheme {name}: {error.errors()[0]['msg']}: rename the file") from None


def load_groups(path: Path | None) -> Groups:
    """Return the settings of a groups file; the defaults if there is none.

    Raises
    ------
    UserError
        The file is wrong.
    """
    if path is None:
        return Groups()
    document = read(path)
    try:
        return Groups.model_validate(document.data)
    except ValidationError as error:
        raise make_user_error(error, Groups, document.where) from None
