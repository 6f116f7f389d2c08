"""How the runs of a scheme train: the study's settings, the scheme's optimizer, and what follows from both."""

from collections.abc import Callable

from hpcbench.codecs import spec
from hpcbench.comm import rules as traffic
from hpcbench.comm.message_precision import content_of, precisions
from hpcbench.errors import UserError
from hpcbench.study.schema import Study
from hpcbench.study.scheme import Rule, Scheme
from hpcbench.study.size import Capacity, Size
from hpcbench.study.training import Train
from hpcbench.study.yaml12 import FieldPath


def settled(train: Train, scheme: Scheme, where: Callable[[FieldPath], str]) -> Train:
    """The study's settings for a scheme, with all that depends on their optimizer filled in.

    Parameters
    ----------
    where
        ``file:line`` of a path of the study.

    Raises
    ------
    UserError
        The optimizer cannot work so.
    """
    optimizer = scheme.optimizer or train.optimizer
    if optimizer != "onebit-adam":
        return train.model_copy(update={"optimizer": optimizer, "freeze_step": None})
    if train.zero:
        raise UserError(
            f"{where(('train', 'zero'))}: train.zero: 1-bit Adam averages whole momenta, and stage {train.zero} cuts "
            "them up: set it to 0, or train with another optimizer"
        )
    if train.offload:
        raise UserError(
            f"{where(('train', 'offload'))}: train.offload: the momenta that 1-bit Adam averages are the device's: set "
            "it to false, or train with another optimizer"
        )
    freeze_step = train.freeze_step or max(train.steps // 5, train.warmup_steps, 1)
    if freeze_step >= train.steps:
        raise UserError(
            f"{where(('train', 'freeze_step'))}: train.freeze_step: a variance that is frozen after {freeze_step} "
            f"updates leaves none of {train.steps} steps to average momenta in: lower it"
        )
    return train.model_copy(update={"optimizer": optimizer, "freeze_step": freeze_step})


def check_rules(study: Study, scheme: Scheme, size: Size, where: Callable[[FieldPath], str]) -> None:
    """Whether the scheme's rules go with how its run trains.

    Parameters
    ----------
    study
        With settled settings; ``study.scheme`` is the scheme's name.

    Raises
    ------
    UserError
        A rule is for traffic that there is not with this optimizer or ZeRO stage, a codec does not take the precision,
        or the backward pass would compute with other values than the forward pass.
    """
    train, rules, name = study.train, _rules(scheme), study.scheme
    setting = traffic.Setting.of(size, train, tied=study.model.tied)
    for k, rule in enumerate(rules):
        if not any(traffic.matches(rule, triple) for triple in traffic.possible(train.optimizer)):
            place, field = _place_of(k, study, where)
            raise UserError(
                f"{place}: {field}: {traffic.called(rules, k)} of scheme {name} is for what only 1-bit Adam sends, and "
                f"the optimizer is {train.optimizer}: set optimizer: onebit-adam in the scheme, or remove the rule"
            )
    missed = traffic.missed_stage(rules, train.zero)
    if missed is not None:
        stage = "3" if rules[missed].phase != "STEP" else "1 or 2"
        raise UserError(
            f"{where(('train', 'zero'))}: train.zero: stage {train.zero} gathers no weights when "
            f"{traffic.called(rules, missed)} of scheme {name} wants them encoded: set it to {stage}, or leave the "
            "scheme out there"
        )
    if train.precision == "fp64":
        formats = precisions(train.precision, train.comm_precision.model_dump())
        for triple in traffic.live(setting):
            k, content = traffic.applying(rules, triple), content_of(triple)
            if (content is None or formats[content] == "fp64") and spec.parse(rules[k].codec).takes_fp64 is False:
                raise UserError(
                    f"{where(('train', 'precision'))}: train.precision: fp64, which {traffic.called(rules, k)} of "
                    f"scheme {name} cannot encode: set train.comm_precision to fp32, or use a lossless codec "
                    "(none, mpc, xpk)"
                )
    crowded = traffic.too_many_to_sum(scheme.algorithm, rules, setting)
    if crowded:
        place, field = _place_of(None, study, where, "algorithm")
        raise UserError(f"{place}: {field}: scheme {name}: {crowded}")
    unequal = traffic.wrong_gradients(rules, setting) or traffic.drifting_copies(rules, setting)
    if unequal:
        place, field = _place_of(None, study, where)
        raise UserError(f"{place}: {field}: scheme {name}: {unequal}")


def check_device(study: Study, scheme: Scheme, capacity: Capacity, where: Callable[[FieldPath], str]) -> None:
    """Whether the scheme can run on the site's device: what its compute nodes would refuse is said here.

    Raises
    ------
    UserError
        It asks for what only the CPU does.
    """
    refused = traffic.refused_on_gpu(scheme.algorithm, _rules(scheme)) if capacity.device != "cpu" else None
    if refused is None:
        return
    k, why = refused
    place, field = _place_of(k, study, where, "algorithm" if k is None else "default" if k == 0 else "")
    raise UserError(
        f"{place}: {field}: scheme {study.scheme} on {capacity.site}, whose device is {capacity.device}: {why}"
    )


def idle_rules(study: Study, scheme: Scheme, size: Size) -> list[str]:
    """One line for each rule of the scheme that carries nothing in a run of the settled study."""
    return traffic.idle(_rules(scheme), traffic.Setting.of(size, study.train, tied=study.model.tied))


def _rules(scheme: Scheme) -> list[Rule]:
    return [Rule(codec=scheme.default), *scheme.rules]


def _place_of(k: int | None, study: Study, where: Callable[[FieldPath], str], key: str = "") -> tuple[str, str]:
    """Where the study says rule `k`, or another `key` of the scheme, or where it names the scheme if that is another's;
    and the name of the field."""
    path: FieldPath = ("scheme",)
    if study.scheme in study.schemes:
        path = ("schemes", study.scheme, *((key,) if key else ("rules", *(() if k is None else (k - 1,)))))
    return where(path), ".".join(map(str, path))
