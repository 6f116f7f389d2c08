"""Options of LSF's bsub: a single dash before multi-letter names, and #BSUB lines in a script.

Sources: IBM Spectrum LSF 10.1, Command Reference, bsub.
"""

import shlex

from fakes.programs import RefusedError

_WITH_VALUE = """-a -alloc_flags -app -b -c -C -clusters -cn_cu -cn_mem -core_isolation -csm -cwd -D -data -datagrp -e
    -eo -env -Ep -eptl -ext -F -f -freq -g -G -gpu -i -is -J -Jd -jobaff -jsm -k -L -Lp -ln_mem -ln_slots -M -m -mig -n
    -network -nnodes -o -oo -outdir -p -P -pack -ptl -q -Q -R -rcacct -S -s -sla -smt -sp -stage -step_cgroup -t -T -U
    -u -v -w -W -wa -We -wt"""
_WITHOUT = "-B -H -hl -I -Ip -Is -K -N -Ne -Nd -r -rn -ti -tty -ul -x -XF -Z -Zs -h -V"
_CSM_ONLY = "-alloc_flags -cn_cu -cn_mem -core_isolation -csm -jsm -ln_mem -ln_slots -nnodes -smt"
WITH_VALUE = frozenset(_WITH_VALUE.split())
WITHOUT = frozenset(_WITHOUT.split())
CSM_ONLY = frozenset(_CSM_ONLY.split())
NOT_FAKED = ("-I", "-Ip", "-Is", "-K", "-pack", "-f")

Options = dict[str, list[str]]


def parse(arguments: list[str]) -> tuple[Options, list[str]]:
    """Return options with their values, in order, and the following command.

    Raises
    ------
    RefusedError
        The option does not exist, or its value is missing.
    """
    options: Options = {}
    remaining = list(arguments)
    while remaining and remaining[0].startswith("-") and remaining[0] != "-":
        word = remaining.pop(0)
        name = _name(word)
        value = ""
        if name in WITH_VALUE:
            value = word[len(name) :]
            if not value and not remaining:
                raise RefusedError(f"Option {name} requires an argument. Job not submitted.")
            value = value or remaining.pop(0)
        options.setdefault(name, []).append(value)
    return options, remaining


def read_script_options(script: str) -> tuple[Options, list[str]]:
    """Return the options of all #BSUB lines, and these lines. Lines that a shell could not parse are refused."""
    arguments: list[str] = []
    lines = [line for line in script.splitlines() if line.startswith("#BSUB")]
    for line in lines:
        try:
            lexer = shlex.shlex(line[len("#BSUB") :], posix=True, punctuation_chars=False)
            lexer.whitespace_split = True
            arguments += list(lexer)
        except ValueError:
            raise RefusedError(f"{line}: Unmatched quote. Job not submitted.") from None
    options, command = parse(arguments)
    if command:
        raise RefusedError(f"{command[0]}: Illegal option in the script. Job not submitted.")
    return options, lines


def merge_options(script: Options, command_line: Options) -> Options:
    """Return the merged options. The command line overrides the script, but resource requirements are combined."""
    options = {name: list(values) for name, values in script.items()}
    for name, values in command_line.items():
        options[name] = options.get(name, []) + values if name == "-R" else list(values)
    return options


def _name(word: str) -> str:
    if word in WITH_VALUE or word in WITHOUT:
        return word
    fitting = [name for name in WITH_VALUE if word.startswith(name)]
    # -nodes is not -n with the value odes: an attached value does not begin with a letter, except in text options
    fitting = [
        name for name in fitting if not word[len(name)].isalpha() or name in ("-J", "-q", "-P", "-G", "-o", "-e")
    ]
    if not fitting:
        raise RefusedError(f"bsub: illegal option -- {word.lstrip('-')}\nJob not submitted.")
    return max(fitting, key=len)
