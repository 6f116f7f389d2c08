"""Sentence templates of a report. Lists of schemes are joined with commas."""

# The answer: does compression pay?
NO_BASELINE_RUN = "Nothing can be compared: the baseline has no run."
NO_BASELINE_COMPLETED = "Nothing can be compared: no run of {scheme} completed."
NO_PAIR_COMPLETED = "Nothing can be compared: no scheme completed a run that has its pair in {scheme}."
PAYS = "{where} compression pays: {schemes}, {loss}."
CELLS_THAT_PAY = "Compression pays in {count} of {cells} cells, most with {scheme} in {cell}: {speed}."
NO_CELL_PAYS = "In none of {cells} cells it is significant that compression pays."
RECOMMENDED = "With {scheme}, {steps} steps{nodes} take {time} ({interval}) instead of {base}{hours}."
NODE_HOURS = ": {hours} instead of {base} node-hours"
FASTER_BY_ALGORITHM = (
    "Faster than the baseline: {schemes}, {loss}, but not significantly faster than {controls}, which has no codec."
)
INCONCLUSIVE = "{where} it is inconclusive whether compression pays."
INCONCLUSIVE_LOSSES = (
    "{where} it is inconclusive whether compression pays; faster schemes are no worse on average only."
)
SEEMS_SLOWER = "{where} compression seems to lose time: {schemes}. That is not significant for every scheme yet."
ALL_SLOWER = "{where} compression does not pay: all schemes are slower than the baseline."
NONE_FASTER = "{where} compression does not pay: no scheme is faster than the baseline."
NONE_FASTER_BY = "{where} compression does not pay: no scheme is {margin:.0f} % faster than the baseline."
ONLY_WORSE_LOSSES = "{where} compression does not pay: the faster schemes train to a worse loss."
LOSS_NO_WORSE = "at a loss no worse than the baseline's"
LOSS_NO_WORSE_MOSTLY = "at a loss no worse than the baseline's, rare failures not excluded"
LOSS_WITHOUT_MEANING = "whose loss shows nothing (see below)"

# Schemes by verdict.
WORSE_LOSS = "Faster, but at a worse loss: {schemes}."
UNSTEADY_LOSS = "Faster, with a loss that is no worse on average only: {schemes}."
NO_LOSS = "Faster, but without a validation loss to compare: {schemes}."
NOT_FASTER = "Not faster: {schemes}."
AS_FAST = "As fast as the baseline, within {margin:.0f} %: {schemes}."
TOO_FEW_REPEATS = "Inconclusive, because there are too few repeats: {schemes}. {advice}"
ONE_PAIR = "A single pair has no scatter: raise repeats: in the study."
MANY_PAIRS_NEEDED = "At the present scatter, even {pairs} pairs would probably not decide all."
PAIRS_NEEDED = "At the present scatter, about {pairs} pairs would probably be enough (repeats: in the study)."
NEVER_ENCODED = (
    "Codec never ran: {schemes}. 0 % of the bytes that have a codec went through it. Speed and loss say nothing about"
    " the codec and are not counted."
)
DIVERGED = "Diverged and therefore not compared: {schemes}."

# Controls, and the simplest scheme.
SAME_ALGORITHM = "the same algorithm without a codec"
CAST = "a cast to 16 bits"
CONTROL_INCONCLUSIVE = "The speed of {scheme}, {kind}, is inconclusive: {speed}."
CONTROL_CAST = "{scheme}, {kind}, runs at {speed} ({verdict})."
CONTROL_DIFFERS = "{scheme}, {kind}, runs at {speed}: this part is due to the algorithm, the rest to the codecs."
CONTROL_SAME = "{scheme}, {kind}, runs at {speed}: the algorithm alone gains nothing."
CONTROL_AS_FAST = "{scheme}, {kind}, runs at {speed}: the algorithm alone gains nothing, within {margin:.0f} %."
HALF_MESSAGES = "Messages have 16 bits without a codec: codecs are compared with the baseline instead of a cast."
NO_CAST = (
    "No cast to 16 bits (naive-bf16, naive-fp16) ran with the schemes: the gain of a codec over a cast is not known."
)
NO_COMMON_PAIR = "{scheme} and {other} have no pair with known speeds."
COMPARED_WITH = "{scheme} is {speed} {other} ({figures}), {loss}."
ALL_BEATEN = "Inconclusive which scheme to take: those that train as well as the baseline are beaten by others."
UNBEATEN = "No scheme significantly beats {schemes}. The logs do not say which scheme is the simplest."
SIMPLEST_IS_BASELINE = "Simplest of the schemes that no other one significantly beats: {schemes}."
SIMPLEST = "Simplest of the schemes that no other one significantly beats: {schemes} ({kind})."

# The method.
POOLED = (
    "Runs of {count} submissions of the same study, site and software are pooled: {submissions}. Losses of equal seed"
    " count once, by their mean."
)
PAIRS_OF_RUNS = (
    "Schemes are compared over pairs of runs of equal seed (number of pairs: {pairs}), {where}; {intervals}."
)
PAIRS_OF_LOGS = (
    "Schemes are compared over pairs of logs (number of pairs: {pairs}) in the order given; {intervals}. It is not"
    " checked that the logs of a pair had the same model, batch, ranks, seed and nodes."
)
SAME_ALLOCATION = "in the same allocation"
OWN_ALLOCATIONS = "each run in its own allocation, perhaps on other nodes"
SOME_ALLOCATIONS = "{apart} of {pairs} pairs in two allocations, perhaps on other nodes"
INTERVALS = "intervals ({confidence:.0f} %, Student's t) describe one comparison each"
NO_INTERVALS = "one pair has no interval"
LEVEL_OF_REPORT = (
    "All findings of the report are held to {level:.0f} % together, also if repeats are added and it is read again at"
    " {looks} pairs."
)
MARGIN_OF_SPEED = "Not faster: the gain is significantly below {margin:.3g} %."
MARGIN_OF_LOSS = (
    "A loss is no worse if two one-sided tests show it within {difference:.4f} of the baseline's"
    " ({margin:.3g} % of it)."
)
OTHER_SYSTEM = "{scheme} ran with {changes}. hpcbench cannot count the bytes of these runs: use --tables network."
STAR = "* from runs that did not complete; they are compared with nothing."
SCALE_OF_LOSS = (
    "For scale: a model that guesses has a loss of {uniform:.3f}, one that has learnt only how often each byte occurs"
    " {unigram:.3f}."
)
SLOW_NODE = "Node {name} is {excess:.0f} % slower than the median of its runs' nodes ({slow} of {runs} runs)."
ODD_BASELINE = (
    "The baseline of {pairing} ran at {ratio:.2f} times the median speed of the baselines: its nodes, or other work on"
    " them, differed."
)

# Changes since an earlier submission.
WORSE_THAN_BEFORE = "Worse than before: {changes}."
NOT_WORSE_THAN_BEFORE = "Nothing is significantly worse than before."
NO_CHANGE_DECIDED = "No change is significant, in either direction: too few repeats, or no common ones."
BETTER_THAN_BEFORE = "Better than before: {changes}."
CHANGES_OPEN = "Inconclusive: {changes}."
SETTINGS_DIFFER = "Settings differ: {change}."
ENVIRONMENT_DIFFERS = "Software or machine changed: {change}."
STACK_DIFFERS = "The software or the machine also changed, which may be the cause: {changes}."
METHOD_OF_CHANGES = (
    "Speeds are compared as independent samples (Welch), losses seed by seed where the seeds are the same. A change"
    " counts if it is significant at {level:.0f} % after Holm's correction, unless it lies significantly within"
    " {speed:.3g} % of the speed or {loss:.3g} % of the loss."
)
MACHINE_CHANGED = "A change of the software or the machine looks like a change of the schemes."
MACHINE_MAY_DIFFER = (
    "The two may have run on different nodes: a change of the machine looks like a change of the program."
)

# What the first screen omits.
GROUP_METHOD = "Method"
MORE_NOTES = "{count} more notes, and the method: --tables all."
TABLES_WITHOUT_VALUES = "Tables without values in these runs: {tables}."
