"""Sentence templates of a report. Lists of schemes are joined with commas."""

# The answer: does compression pay? A verdict (Yes, No or Inconclusive) precedes each of these sentences.
NO_BASELINE_RUN = "Nothing can be compared: the baseline has no run."
NO_BASELINE_COMPLETED = "Nothing can be compared: no run of {scheme} completed."
NO_PAIR_COMPLETED = "Nothing can be compared: no scheme has a completed run that can be paired with a run of {scheme}."
NO_CODEC_COMPARED = "{where} no scheme with a codec can be compared with the baseline."
PAYS = (
    "{where} compression pays. {best}: {scheme}, {speed:.2f} times the baseline's speed ({confidence:.0f} % "
    "interval {interval}); the loss changes by {difference}, {loss}."
)
BEST = "Best"
BEST_OF_SIMPLEST = "Best (the simplest that no other scheme significantly beats)"
BEST_BUT_BEATEN = "Fastest codec, but significantly beaten by {schemes}"
BEST_SO_FAR = "Best so far"
CHANGE_NO_WORSE = "no worse within the margin of {margin:.3g} %"
CHANGE_BETTER = "better by more than the margin of {margin:.3g} %"
CHANGE_WITHOUT_MEANING = "but is not informative (see below)"
NOT_BETTER_THAN_CAST = "{scheme} is not significantly better than a cast to 16 bits, which is simpler: {casts}."
ALSO_FASTER = "Also faster, {loss}: {schemes}."
FASTER_WITHOUT_CODEC = "Faster without a codec, {loss}: {schemes}."
FAILURES_POSSIBLE = (
    "With {pairs} pairs, it cannot be ruled out that up to {rate:.0f} % of the runs train to a worse loss "
    "({confidence:.0f} % confidence)."
)
CELLS_THAT_PAY = "Compression pays in {count} of {cells} cells. The gain is largest with {scheme} in {cell}: {speed}."
NO_CELL_PAYS = "Compression does not pay in any of {cells} cells."
NO_CELL_DECIDED = "The gain of compression is not significant in any of {cells} cells."
RECOMMENDED = "With {scheme}, {steps} steps{nodes} take {time} ({interval}) instead of {base}{hours}."
NODE_HOURS = ": {hours} instead of {base} node-hours"
FASTER_BY_ALGORITHM = (
    "Faster than the baseline: {schemes}, {loss}, but not significantly faster than {controls}, which has no codec."
)
INCONCLUSIVE = "{where} it is unclear whether compression pays."
INCONCLUSIVE_LOSSES = (
    "{where} it is unclear whether compression pays: the losses of the faster schemes are no worse on average only."
)
SEEMS_SLOWER = (
    "{where} compression seems to lose time: {schemes}. The loss of time is not yet significant for every scheme."
)
ALL_SLOWER = "{where} compression does not pay: all schemes{kind} are slower than the baseline."
NONE_FASTER = "{where} compression does not pay: no scheme{kind} is faster than the baseline."
NONE_FASTER_BY = "{where} compression does not pay: no scheme{kind} is {margin:.0f} % faster than the baseline."
WITH_CODEC = " with a codec"
ONLY_WORSE_LOSSES = "{where} compression does not pay: the faster schemes train to a worse loss."
LOSS_NO_WORSE = "at a loss no worse than the baseline's"
LOSS_WITHOUT_MEANING = "whose loss is not informative (see below)"

# Schemes by verdict.
WORSE_LOSS = "Faster, but at a worse loss: {schemes}."
UNSTEADY_LOSS = "Faster, with a loss that is no worse on average only: {schemes}."
NO_LOSS = (
    "Faster, but without a validation loss to compare: {schemes}. To compare losses, let the program print its "
    "validation loss."
)
NOT_FASTER = "Not faster: {schemes}."
AS_FAST = "As fast as the baseline, within {margin:.0f} %: {schemes}."
TOO_FEW_REPEATS = "Inconclusive, because there are too few repeats: {schemes}. {advice}"
ONE_PAIR = "A single pair has no interval: raise `repeats:` in the study."
MANY_PAIRS_NEEDED = (
    "With the current scatter, even {pairs} pairs would probably not be enough to decide all comparisons."
)
PAIRS_NEEDED = "With the current scatter, about {pairs} pairs would probably be enough (`repeats:` in the study)."
NEVER_ENCODED = (
    "Codec never ran: {schemes}. 0 % of the bytes for which a codec is set were encoded. Speed and loss say "
    "nothing about the codec and are not counted."
)
DIVERGED = "Diverged and therefore not compared: {schemes}."

# Controls, and the simplest scheme.
SAME_ALGORITHM = "the same algorithm without a codec"
CAST = "a cast to 16 bits"
CONTROL_INCONCLUSIVE = "The speed of {scheme}, {kind}, is inconclusive: {speed}."
CONTROL_CAST = "{scheme}, {kind}, runs at {speed} ({verdict})."
CONTROL_DIFFERS = (
    "{scheme}, {kind}, runs at {speed}: this part of the difference is due to the algorithm, and the rest to the "
    "codecs."
)
CONTROL_SAME = "{scheme}, {kind}, runs at {speed}: the algorithm alone gains nothing."
CONTROL_AS_FAST = "{scheme}, {kind}, runs at {speed}: the algorithm alone gains nothing, within {margin:.0f} %."
HALF_MESSAGES = "Without a codec, messages have 16 bits: codecs are compared with the baseline instead of a cast."
CAST_BASELINE = "The baseline casts messages to 16 bits: codecs are compared with a cast."
NO_CAST = (
    "No cast to 16 bits (naive-bf16, naive-fp16) was run with the schemes: the gain of a codec over a cast is unknown."
)
NO_COMMON_PAIR = "{scheme} and {other} have no pair with known speeds."
UNCORRECTED = "{interval} before correction for multiple tests"
COMPARED_WITH = "{scheme} is {speed} {other} ({figures}), {loss}."
ALL_BEATEN = (
    "It is inconclusive which scheme to use: each scheme that trains as well as the baseline is beaten by another "
    "scheme."
)
UNBEATEN = "No scheme significantly beats {schemes}. The logs do not say which scheme is the simplest."
SIMPLEST_IS_BASELINE = "Simplest of the schemes that no other scheme significantly beats: {schemes}."
SIMPLEST = "Simplest of the schemes that no other scheme significantly beats: {schemes} ({kind})."

# The method.
POOLED = (
    "Runs of {count} submissions of the same study, site and software are pooled: {submissions}. Losses with the "
    "same seed count once, as their mean."
)
PAIRS_OF_RUNS = (
    "Schemes are compared over pairs of runs with the same seed (number of pairs: {pairs}), {where}; {intervals}."
)
PAIRS_OF_LOGS = (
    "Schemes are compared over pairs of logs (number of pairs: {pairs}) in the order given; {intervals}. "
    "hpcbench does not check that the logs of a pair have the same model, batch, ranks, seed and nodes."
)
SAME_ALLOCATION = "in the same allocation"
OWN_ALLOCATIONS = "each run in its own allocation, perhaps on other nodes"
SOME_ALLOCATIONS = "{apart} of {pairs} pairs in two allocations, perhaps on other nodes"
INTERVALS = "intervals ({confidence:.0f} %, Student's t) describe one comparison each"
NO_INTERVALS = "one pair has no interval"
LEVEL_OF_REPORT = (
    "The error level of {level:.0f} % applies to all findings of the report together, even if repeats are added "
    "and the report is read again at {looks} pairs."
)
MARGIN_OF_SPEED = "Not faster: the gain is significantly below {margin:.3g} %."
MARGIN_OF_LOSS = (
    "A loss is no worse if two one-sided tests show it within {difference:.4f} of the baseline's"
    " ({margin:.3g} % of it)."
)
OTHER_SYSTEM = "{scheme} ran with {changes}. hpcbench cannot count the bytes of these runs: use --tables network."
STAR = "* from runs that did not complete. They are not compared."
SCALE_OF_LOSS = (
    "For scale: a model that guesses has a loss of {uniform:.3f}, and a model that has learned only how often "
    "each byte occurs has a loss of {unigram:.3f}."
)
SLOW_NODE = "Node {name} is {excess:.0f} % slower than the median of its runs' nodes ({slow} of {runs} runs)."
ODD_BASELINE = (
    "The baseline of {pairing} ran at {ratio:.2f} times the median speed of the baselines: its nodes, or other "
    "work on its nodes, differed."
)

# Changes since an earlier submission.
WORSE_THAN_BEFORE = "Worse than before: {changes}."
NOT_WORSE_THAN_BEFORE = "Nothing is significantly worse than before."
NO_CHANGE_DECIDED = (
    "No change is significant in either direction: the submissions have too few repeats, or no repeats in common."
)
BETTER_THAN_BEFORE = "Better than before: {changes}."
CHANGES_OPEN = "Inconclusive: {changes}."
SETTINGS_DIFFER = "Settings differ: {change}."
ENVIRONMENT_DIFFERS = "Software or machine changed: {change}."
STACK_DIFFERS = "The software or the machine also changed, which may be the cause: {changes}."
METHOD_OF_CHANGES = (
    "Speeds are compared as independent samples (Welch's t test), and losses seed by seed if the seeds are the "
    "same. A change counts if it is significant at {level:.0f} % after Holm's correction, unless it lies "
    "significantly within {speed:.3g} % of the speed or {loss:.3g} % of the loss."
)
MACHINE_CHANGED = "In this comparison, a change of the software or the machine looks like a change of the schemes."
MACHINE_MAY_DIFFER = (
    "The two submissions may have run on different nodes. In that case, a change of the machine looks like a "
    "change of the program."
)

# What the first screen omits.
GROUP_METHOD = "Method"
MORE_NOTES = "More notes ({count}) and the method: --tables all."
TABLES_WITHOUT_VALUES = "Tables without values in these runs: {tables}."
