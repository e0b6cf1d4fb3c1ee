#!/usr/bin/env python3
"""How long the programs of tests/apps take natively, over shm and tcp, and over emulated links.

Needs a machine with a GPU, root (or a user who may use unshare -m), and what the programs need.
Server and client are on this host; the client's GPU is hidden. In each round every way runs all
programs, one after the other in one process, so that modules are loaded once. A program that
measures a start has a process of its own (--alone). Prints a table: medians (lowest to highest),
times native (ratio of the medians; median of the rounds' ratios). A way that is not native, shm or
tcp is an emulated link: rtt=50us,bandwidth=25Gbps."""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from gpu_runs import APPS, Daemon, last_lines, machine, run  # noqa: E402

WAYS = ["native", "shm", "tcp", "rtt=50us,bandwidth=25Gbps", "rtt=200us,bandwidth=10Gbps"]
PROGRAMS = [
    "torch_tiny_adds",
    "torch_bert",
    "torch_gpt2",
    "torch_resnet50",
    "torch_resnet50_train",
]
ALONE = ["torch_first_tensor"]
LIMIT = 300  # seconds of one process


def run_inside(names, folder):
    """In the process that is measured: each program, with a line that names it before its own."""
    import runpy

    sys.path.insert(0, str(folder))
    for name in names:
        print(f"program {name}", flush=True)
        runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")


def seconds_of(text):
    """{program: seconds} of what run_inside() printed."""
    found, name = {}, None
    for line in text.splitlines():
        if line.startswith("program "):
            name = line.split()[1]
        elif line.startswith("{") and name is not None:
            found[name] = json.loads(line)["seconds"]
    return found


class Failed(Exception):
    """A process failed; the message says which, and its last lines."""


def measure(way, names, daemon, options):
    """{program: seconds}: all of them in one process."""
    command = [sys.executable, __file__, "--folder", options.folder, "--inside", *names]
    environment = dict(os.environ)
    simulated = options.where == "sim"
    if way == "native":
        if simulated:
            environment["LD_LIBRARY_PATH"] = str(daemon.build / "lib" / "sim-direct")
    else:
        transport = way if way in ("shm", "tcp", "rdma") else "tcp"
        if transport != way:
            environment["FARGPU_LINK"] = way
        command = [*daemon.client(transport, hide=not simulated), *command]
    outcome = run(command, LIMIT, environment)
    found = seconds_of(outcome.stdout)
    if outcome.code != 0 or found.keys() != set(names):
        raise Failed(f"{way}: {' '.join(names)}: {outcome.failure()}")
    return found


def times(values):
    """Seconds as text: the median (lowest to highest) in a unit that suits it."""
    unit, factor = ("s", 1) if statistics.median(values) >= 1 else ("ms", 1e3)
    middle, low, high = (
        f"{value * factor:.3g}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} {unit} ({low} to {high})"


def cell(values, native):
    """`values`, and `native` beside them: of each round, None where it failed."""
    there = [value for value in values if value is not None]
    if not there:
        return ""
    text = times(there)
    pairs = [pair for pair in zip(values, native, strict=True) if None not in pair]
    if pairs and values is not native:
        of_medians = statistics.median(there) / statistics.median(base for _, base in pairs)
        ratio = statistics.median(value / base for value, base in pairs)
        text += f", {of_medians:.2f}; {ratio:.2f}"
    return text


def table(results, ways, programs):
    """Markdown. results: {program: {way: [seconds of a round, None where it failed]}}"""
    lines = ["| program | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for program in programs:
        row = results[program]
        native = row.get("native", [None] * len(row[ways[0]]))
        cells = [cell(row[way], native) for way in ways]
        lines.append(f"| {program} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    path = pathlib.Path
    parser.add_argument("--build-dir", type=path, default=ROOT / "build" / "portable")
    parser.add_argument(
        "--where",
        choices=("gpu", "sim"),
        default="gpu",
        help="the machine's GPU, or a simulated one, whose driver is then also the native one",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--alone", nargs="*", default=ALONE, help="each in a process of its own")
    parser.add_argument("--folder", type=path, default=APPS, help="where the programs are")
    parser.add_argument("--json", type=path, help="write seconds by program, way and round")
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    options.folder = options.folder.resolve()
    if options.inside:
        run_inside(options.inside, options.folder)
        return 0
    programs = [*options.alone, *options.programs]
    groups = [[name] for name in options.alone]
    groups += [options.programs] if options.programs else []
    results = {name: {way: [] for way in options.ways} for name in programs}
    failures = []
    with tempfile.TemporaryDirectory(prefix="fargpu-programs-") as work:
        build = options.build_dir.resolve()
        driver = build / "lib" / "libfargpu-sim.so" if options.where == "sim" else None
        daemon = Daemon(build, pathlib.Path(work), driver)
        daemon.start()
        begin = time.monotonic()
        try:
            for number in range(1, options.rounds + 1):
                for way in options.ways:
                    for names in groups:
                        found = {}
                        try:
                            found = measure(way, names, daemon, options)
                        except Failed as failure:
                            failures.append(str(failure))
                        for name in names:
                            results[name][way].append(found.get(name))
                passed = time.monotonic() - begin
                left = passed / number * (options.rounds - number)
                print(
                    f"round {number} of {options.rounds}: {passed:.0f} s, {left:.0f} s left",
                    file=sys.stderr,
                    flush=True,
                )
                # What there is, should the time end.
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1) + "\n")
        finally:
            daemon.stop()
    where = "simulated GPU" if options.where == "sim" else machine()
    print(f"{where}, {options.rounds} rounds in turn\n")
    print(table(results, options.ways, programs))
    for failure in failures:
        print("failed: " + last_lines(failure), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
