"""Scheme lookup by name, in the study, the site, and the presets, in this order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from hpcbench.contract.problems import make_user_error
from hpcbench.contract.scheme import Scheme
from hpcbench.errors import UserError
from hpcbench.study import presets
from hpcbench.study.schema import SchemeEntry
from hpcbench.study.systems import read_systems


@dataclass(frozen=True)
class Offer:
    """Schemes added by a site."""

    site: str
    schemes: Mapping[str, Scheme]
    elsewhere: Callable[[str], list[str]]
    """Function that returns the names of all sites that add a scheme."""


SCHEME_OPTION = "--scheme"
"""Option of `hpcbench run`, which also accepts a scheme file."""
NOTHING = Offer("", {}, lambda scheme: [])
"""Value for a site that adds no schemes."""


def find_scheme(name: str, study_schemes: Mapping[str, Scheme], offer: Offer, where: str) -> tuple[Scheme, str | None]:
    """Return the scheme with a given name, and a warning if another source defines the same name.

    Parameters
    ----------
    study_schemes
        Schemes defined in the study.
    where
        ``file:line`` of the name, or the option `SCHEME_OPTION`.

    Raises
    ------
    UserError
        The scheme does not exist, or a codec does not support the given rate.
    """
    holders = {"the study": study_schemes.get(name), f"site {offer.site}": offer.schemes.get(name)}
    candidates = [(holder, scheme) for holder, scheme in holders.items() if scheme is not None]
    if not candidates:
        return _preset(name, offer, where), None
    (holder, scheme), *shadowed = candidates
    others = [*(other for other, _ in shadowed), *(["a preset"] if presets.is_scheme(name) else [])]
    return scheme, f"scheme {name} is defined by {holder}, which overrides {' and '.join(others)}" if others else None


def _preset(name: str, offer: Offer, where: str) -> Scheme:
    try:
        return SchemeEntry.model_validate({"system": name} if name in read_systems() else presets.scheme(name))
    except ValidationError as error:
        raise make_user_error(error, SchemeEntry, lambda _: f"{where}: scheme {name!r}") from None
    except ValueError as error:
        other_source = "a file that ends in .yaml" if where == SCHEME_OPTION else "a scheme under `schemes:`"
        raise UserError(f"{where}: {error}, or {other_source}{_of_sites(name, offer)}") from None


def _of_sites(name: str, offer: Offer) -> str:
    """Return a hint that lists the site's schemes, and other sites that define the name."""
    if not offer.site:
        return ""
    hint = f"; site {offer.site} adds {', '.join(offer.schemes) or 'none'}"
    others = offer.elsewhere(name)
    return f"{hint}; {name} exists on {', '.join(others)}" if others else hint
