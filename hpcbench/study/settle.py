"""Training settings of a run: study settings, the scheme's optimizer, and dependent values."""

from hpcbench.contract import rules
from hpcbench.contract.call_treatment import explain_undecidable
from hpcbench.contract.problems import FieldPath, Locator
from hpcbench.contract.scheme import Scheme
from hpcbench.contract.scheme_fit import explain_scheme_misfit
from hpcbench.contract.traffic import TrafficSettings, list_possible_traffic
from hpcbench.contract.training import Train, find_optimizer_misfit
from hpcbench.errors import UserError
from hpcbench.study.program_start import find_start_fault
from hpcbench.study.schema import AnyStudy, ProgramStudy, Study
from hpcbench.study.size import Capacity, Size


def settle_train(train: Train, scheme: Scheme, where: Locator) -> Train:
    """Return the training settings for a scheme, including values that depend on the optimizer.

    Raises
    ------
    UserError
        The optimizer does not support these settings.
    """
    optimizer = scheme.optimizer or train.optimizer
    freeze_step = None
    if optimizer == "onebit-adam":
        freeze_step = train.freeze_step or max(train.steps // 5, train.warmup_steps, 1)
    settings = train.changed(optimizer=optimizer, freeze_step=freeze_step, min_lr=train.lowest_lr)
    if misfit := find_optimizer_misfit(settings):
        raise UserError(f"{where(misfit.field)}: {misfit}")
    return settings


def check_rules(study: Study, scheme: Scheme, size: Size, where: Locator) -> None:
    """Check that the scheme's rules are compatible with the run's training settings.

    Parameters
    ----------
    study
        Study with the settings of `settle_train`. ``study.scheme`` is the scheme's name.

    Raises
    ------
    UserError
        The scheme has arguments, or a rule selects traffic that does not occur with this optimizer or ZeRO stage. Other
        causes are a codec that does not support the precision, rules that change between steps that overlap, and a
        backward pass that would use different values than the forward pass.
    """
    train, name = study.train, study.scheme
    if scheme.arguments:
        place, field = _place_of(None, study, where, "arguments")
        raise UserError(
            f"{place}: {field}: scheme {name} has arguments, which only studies of a program support: use settings "
            "under train, or environment"
        )
    setting = TrafficSettings(size.layout, train, study.model.tied)
    for k, rule in enumerate(scheme.all_rules):
        if not any(rule.matches(triple) for triple in list_possible_traffic(train.optimizer)):
            place, field = _place_of(k, study, where)
            raise UserError(
                f"{place}: {field}: {scheme.name_rule(k)} of scheme {name} is for traffic of 1-bit Adam only, but the "
                f"optimizer is {train.optimizer}: set optimizer: onebit-adam in the scheme, or remove the rule"
            )
    missed = rules.find_missed_stage(scheme, train.zero)
    if missed is not None:
        stage = "3" if scheme.all_rules[missed].phase != "STEP" else "1 or 2"
        raise UserError(
            f"{where(('train', 'zero'))}: train.zero: stage {train.zero} does not gather the weights that "
            f"{scheme.name_rule(missed)} of scheme {name} encodes: set zero to {stage}, or leave the scheme out"
        )
    if beyond := rules.find_fp64_obstacle(scheme, setting):
        k, why = beyond
        raise UserError(
            f"{where(('train', 'precision'))}: train.precision: fp64, which {scheme.name_rule(k)} of scheme {name} "
            f"{why}"
        )
    crowded = rules.explain_sum_overflow(scheme, setting)
    if crowded:
        place, field = _place_of(None, study, where, "algorithm")
        raise UserError(f"{place}: {field}: scheme {name}: {crowded}")
    unequal = explain_scheme_misfit(scheme, setting, study.data)
    if unequal:
        place, field = _place_of(None, study, where)
        raise UserError(f"{place}: {field}: scheme {name}: {unequal}")


def check_device(study: Study, scheme: Scheme, capacity: Capacity, where: Locator) -> None:
    """Check before submission that the site's device supports the scheme."""
    refused = rules.find_gpu_obstacle(scheme) if capacity.device != "cpu" else None
    if refused is None:
        return
    k, why = refused
    place, field = _place_of(k, study, where, "algorithm" if k is None else "default" if k == 0 else "")
    raise UserError(
        f"{place}: {field}: scheme {study.scheme} cannot run on {capacity.site}, whose device is {capacity.device}: "
        f"{why}"
    )


def check_program(study: ProgramStudy, scheme: Scheme, size: Size, where: Locator) -> None:
    """Check that another program starts the right number of ranks, and that the scheme is applicable to it."""
    if fault := find_start_fault(study.program, size.nodes):
        raise UserError(f"{where(('program', 'command'))}: program.command: {fault}")
    reason = explain_undecidable(scheme)
    if reason:
        place, field = _place_of(None, study, where)
        raise UserError(f"{place}: {field}: scheme {study.scheme}: {reason}")


def idle_rules(study: AnyStudy, scheme: Scheme, size: Size) -> list[str]:
    """List the scheme's rules that match no traffic in a run of the study, one line each.

    The list is empty for other programs, because their traffic is unknown in advance.
    """
    if isinstance(study, ProgramStudy):
        return []
    return rules.list_idle_rules(scheme, TrafficSettings(size.layout, study.train, study.model.tied))


def _place_of(k: int | None, study: AnyStudy, where: Locator, key: str = "") -> tuple[str, str]:
    """Return the location of rule `k`, or of another `key` of the scheme, and the field name.

    If another file defines the scheme, the location of the scheme's name is returned.
    """
    path: FieldPath = ("scheme",)
    if study.scheme in study.schemes:
        path = ("schemes", study.scheme, *((key,) if key else ("rules", *(() if k is None else (k - 1,)))))
    return where(path), ".".join(map(str, path))
