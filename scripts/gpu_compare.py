"""What scripts/gpu-suite compares: the outcomes of native runs and of one through fargpu."""

import difflib
import functools
import math
import sys

from gpu_runs import ROOT

LAST_LINE = "last line"  # a tolerance: notes before the last line may differ
ANSWERS = "answers"  # a tolerance: what tests/conformance/answers/differences.yml lists may differ
NATIVE = "native"  # a tolerance: compare_with_spread() of NATIVE_RUNS native runs
NATIVE_RUNS = 3


def compare_with_spread(natives, remote):
    """'' when each value equals the native ones, or lies no farther outside them than they lie
    apart."""
    runs = [outcome.values for outcome in natives]
    if remote.values is None or any(run is None or len(run) != len(remote.values) for run in runs):
        return "no comparable values"
    for index, value in enumerate(remote.values):
        low, high = min(run[index] for run in runs), max(run[index] for run in runs)
        if not low - (high - low) <= value <= high + (high - low):
            return f"value {index} is {value!r}, natively {low!r} to {high!r}"
    return ""


def compare(natives, remote, tolerance, transport):
    """'' when the remote run computed what the native ones did, else what differs."""
    if tolerance == NATIVE:
        return compare_with_spread(natives, remote)
    native = natives[0]
    if tolerance == ANSWERS:
        lines = conformance_answers().beside(
            native.stdout.splitlines(), remote.stdout.splitlines(), transport
        )
        return "\n".join([f"{len(lines)} answers differ", *lines]) if lines else ""
    if tolerance == LAST_LINE:
        last = [outcome.stdout.splitlines()[-1:] for outcome in (native, remote)]
        return "" if last[0] == last[1] else f"its last line is {last[1]}"
    if tolerance is None:
        if native.stdout == remote.stdout:
            return ""
        lines = difflib.unified_diff(
            native.stdout.splitlines(),
            remote.stdout.splitlines(),
            "native",
            "fargpu",
            lineterm="",
            n=0,
        )
        return "output differs\n" + "\n".join(list(lines)[:40])
    if native.values is None or remote.values is None or len(native.values) != len(remote.values):
        return "no comparable values"
    for index, (a, b) in enumerate(zip(native.values, remote.values, strict=True)):
        if not math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3):
            return f"value {index} is {b!r} instead of {a!r}"
    return ""


@functools.cache
def conformance_answers():
    """The module answers.py; it and the description need PyYAML."""
    folder = str(ROOT / "tests" / "conformance" / "answers")
    sys.path.insert(0, folder)
    try:
        import answers
    except ModuleNotFoundError as missing:
        sys.exit(f"--conformance needs the Python module {missing.name}")
    return answers
