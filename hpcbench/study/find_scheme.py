"""Which scheme a name stands for: first the study's own, then the site's, then a preset."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from hpcbench.contract.problems import make_user_error
from hpcbench.contract.scheme import Scheme
from hpcbench.errors import UserError
from hpcbench.study import presets
from hpcbench.study.schema import SchemeEntry


@dataclass(frozen=True)
class Offer:
    """The schemes that a site adds."""

    site: str
    schemes: Mapping[str, Scheme]
    elsewhere: Callable[[str], list[str]]
    """Names of the sites that add a scheme."""


NOTHING = Offer("", {}, lambda scheme: [])
"""The offer of a site that adds no scheme."""


def find_scheme(name: str, own: Mapping[str, Scheme], offer: Offer, where: str) -> tuple[Scheme, str | None]:
    """The scheme of that name, and a warning if others have a scheme of the same name.

    Parameters
    ----------
    own
        The study's schemes.
    where
        ``file:line`` of the place that names it.

    Raises
    ------
    UserError
        There is no such scheme, or its rates are beyond its codecs.
    """
    holders = {"the study": own.get(name), f"site {offer.site}": offer.schemes.get(name)}
    found = [(who, scheme) for who, scheme in holders.items() if scheme is not None]
    if not found:
        return _preset(name, offer, where), None
    others = [*(who for who, _ in found[1:]), *(["a preset"] if presets.is_scheme(name) else [])]
    return found[0][1], f"scheme {name} is that of {found[0][0]}, not {' nor '.join(others)}" if others else None


def _preset(name: str, offer: Offer, where: str) -> Scheme:
    try:
        return SchemeEntry.model_validate(presets.scheme(name))
    except ValidationError as error:
        raise make_user_error(error, SchemeEntry, lambda _: f"{where}: scheme {name!r}") from None
    except ValueError as error:
        raise UserError(f"{where}: {error}{_of_sites(name, offer)}") from None


def _of_sites(name: str, offer: Offer) -> str:
    """What the sites know about a name that is unknown here."""
    if not offer.site:
        return ""
    own = f"; site {offer.site} adds {', '.join(offer.schemes) or 'none'}"
    others = offer.elsewhere(name)
    return f"{own}; {name} is there on {', '.join(others)}" if others else own
