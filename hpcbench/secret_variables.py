"""Environment variables that may contain secrets, and are therefore not recorded."""

import re

_NAME = r"(TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|AUTH|KEY)"
_SECRET = re.compile(rf"{_NAME}.*=|://.*:.*@", re.DOTALL)
"""Names and assignments inside of values, as in ``--header TOKEN=x``, and URLs that contain a password."""


def may_be_secret(name: str, value: str) -> bool:
    """Return whether the variable `name` may contain a secret. No pattern finds all of them."""
    return _SECRET.search(f"{name.upper()}={value}") is not None
