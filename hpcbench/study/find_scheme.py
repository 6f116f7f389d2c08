"""Lookup of a scheme by name: first in the study, then in the site, then in the presets."""

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
    """The schemes that a site adds."""

    site: str
    schemes: Mapping[str, Scheme]
    elsewhere: Callable[[str], list[str]]
    """Names of the sites that add a scheme."""


NOTHING = Offer("", {}, lambda scheme: [])
"""The offer of a site that adds no scheme."""


def find_scheme(name: str, study_schemes: Mapping[str, Scheme], offer: Offer, where: str) -> tuple[Scheme, str | None]:
    """Return the scheme with that name, and a warning if others have a scheme of the same name.

    Parameters
    ----------
    study_schemes
        The study's schemes.
    where
        ``file:line`` where the name is written.

    Raises
    ------
    UserError
        The scheme does not exist, or its codecs do not support its rates.
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
        raise UserError(f"{where}: {error}{_of_sites(name, offer)}") from None


def _of_sites(name: str, offer: Offer) -> str:
    """Return a hint that lists the site's schemes and the other sites that have the name."""
    if not offer.site:
        return ""
    hint = f"; site {offer.site} adds {', '.join(offer.schemes) or 'none'}"
    others = offer.elsewhere(name)
    return f"{hint}; {name} exists on {', '.join(others)}" if others else hint
