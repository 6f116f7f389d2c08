"""Settings of `hpcbench run`: a scheme (name or file) and a groups file."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpcbench.contract.interpose import Groups
from hpcbench.contract.problems import make_user_error
from hpcbench.contract.scheme import NamedScheme
from hpcbench.errors import UserError
from hpcbench.study.find_scheme import NOTHING, SCHEME_OPTION, find_scheme
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.yaml12 import read


def load_scheme(name: str) -> NamedScheme:
    """Return the scheme with a given name, or the scheme from a file.

    Raises
    ------
    UserError
        The scheme does not exist, or the file is invalid.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        document = read(path)
        try:
            entry = SchemeEntry.model_validate(document.data)
        except ValidationError as error:
            raise make_user_error(error, SchemeEntry, document.where) from None
        return _named(path.stem, entry)
    scheme, _ = find_scheme(name, {}, NOTHING, SCHEME_OPTION)
    return _named(name, scheme)


def _named(name: str, entry: Any) -> NamedScheme:
    try:
        return NamedScheme(name=name, **entry.model_dump(exclude={"description", "system"}, exclude_unset=True))
    except ValidationError as error:
        raise UserError(f"--scheme {name}: {error.errors()[0]['msg']}: rename the file") from None


def load_groups(path: Path | None) -> Groups:
    """Return the settings of a groups file, or the defaults if `path` is None.

    Raises
    ------
    UserError
        The file is invalid.
    """
    if path is None:
        return Groups()
    document = read(path)
    try:
        return Groups.model_validate(document.data)
    except ValidationError as error:
        raise make_user_error(error, Groups, document.where) from None
