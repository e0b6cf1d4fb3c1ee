#!/usr/bin/env python3
"""How long the programs of tests/apps take natively, over shm and tcp, and over emulated links.

Needs a machine with a GPU, root (or a user who may use unshare -m), and what the programs need.
Server and client are on this host; the client's GPU is hidden. Each way has a process, in which all
programs are loaded and run once. Then, in each round, every program's timed part runs again in each
way, one right behind the other. All of that is repeated with new processes (--starts). A program
that measures a start (--alone) has a process of its own in every round.

Prints a table: medians of the rounds (lowest to highest), times native (ratio of the medians;
median of the rounds' ratios). A way that is not native, shm or tcp is an emulated link:
rtt=50us,bandwidth=25Gbps.

With --other DIR each way but native runs in a second build, too, right before or behind the first.
A second table has the median of the rounds' ratios, first build to second, and the bounds within
which this median lies with 95 % confidence (order statistics: nothing is assumed of the noise)."""

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import pathlib
import runpy
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from gpu_runs import APPS, Daemon, last_lines, machine  # noqa: E402

WAYS = ["native", "shm", "tcp", "rtt=50us,bandwidth=25Gbps", "rtt=200us,bandwidth=10Gbps"]
PROGRAMS = [
    "torch_tiny_adds",
    "torch_bert",
    "torch_gpt2",
    "torch_resnet50",
    "torch_resnet50_train",
]
ALONE = ["torch_first_tensor"]
OTHER = " of the other build"
LIMIT = 300  # seconds of one answer
READY = "ready"


class Program:
    """In the process that is measured: a program, which may be asked for its time again."""

    def __init__(self, folder, name, runs):
        """runs: how often the timed part runs in a round; None: as often as the program says."""
        self.path = folder / f"{name}.py"
        self.runs = {} if runs is None else {"runs": runs}
        self.timed = []  # the calls of report.timed() in its run

    def seconds(self):
        """Runs it; later, if it timed one part, only that."""
        if len(self.timed) == 1:
            return self.timed[0]()[1]
        with contextlib.redirect_stdout(io.StringIO()) as said, self.timed_parts():
            runpy.run_path(str(self.path), run_name="__main__")
        reports = [line for line in said.getvalue().splitlines() if line.startswith("{")]
        return json.loads(reports[-1])["seconds"]

    @contextlib.contextmanager
    def timed_parts(self):
        """While this lasts, what the program times is kept in self.timed."""
        try:
            report = importlib.import_module("report")
        except ModuleNotFoundError:  # the folder's programs do without
            yield
            return
        timed = report.timed

        def keep(*arguments, **more):
            self.timed.append(lambda: timed(*arguments, **(more | self.runs)))
            return timed(*arguments, **more)

        self.timed, report.timed = [], keep
        try:
            yield
        finally:
            report.timed = timed


def run_inside(modules, folder, runs):
    """In the process that is measured: for each program that a line of standard input names, a
    line with its name and its seconds, or null."""
    sys.path[:0] = [str(folder), str(APPS)]  # the latter has report.py
    for module in modules:
        importlib.import_module(module)
    programs = {}
    print(READY, flush=True)
    for line in sys.stdin:
        name = line.strip()
        seconds = None
        try:
            seconds = programs.setdefault(name, Program(folder, name, runs)).seconds()
        except (Exception, SystemExit):
            traceback.print_exc()
        print(json.dumps([name, seconds]), flush=True)


class Failed(Exception):
    """A process gave no answer; the message says which, and its last lines."""


class Way:
    """A process that runs programs in one way."""

    def __init__(self, way, daemons, options):
        kind = way.removesuffix(OTHER)
        daemon = daemons[kind != way]
        command = [sys.executable, __file__, "--folder", options.folder]
        if options.runs is not None:
            command += ["--runs", str(options.runs)]
        command += ["--inside", *options.imports]
        environment = dict(os.environ)
        simulated = options.where == "sim"
        if kind == "native":
            if simulated:
                environment["LD_LIBRARY_PATH"] = str(daemon.build / "lib" / "sim-direct")
        else:
            transport = kind if kind in ("shm", "tcp", "rdma") else "tcp"
            if transport != kind:
                environment["FARGPU_LINK"] = kind
            command = [*daemon.client(transport, hide=not simulated), *command]
        self.way = way
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            start_new_session=True,
        )
        self.said = b""

    def ask(self, program):
        """Its answer is to be read next."""
        with contextlib.suppress(BrokenPipeError):  # it has ended: line() says so
            os.write(self.process.stdin.fileno(), f"{program}\n".encode())

    def line(self):
        """Its next line. A process that says nothing in time is ended: what it says later would be
        taken for the answer to another question."""
        end = time.monotonic() + LIMIT
        output = self.process.stdout.fileno()
        while b"\n" not in self.said:
            left = end - time.monotonic()
            more = left > 0 and select.select([output], [], [], left)[0] and os.read(output, 4096)
            if not more:
                self.kill()
                raise Failed(f"{self.way}: no answer: {self.last_words()}")
            self.said += more
        line, _, self.said = self.said.partition(b"\n")
        return line.decode(errors="replace")

    def ready(self):
        while self.line() != READY:  # what its modules say
            pass

    def seconds(self, program):
        """Of the program that it was asked about."""
        while True:
            line = self.line()
            with contextlib.suppress(ValueError, TypeError):  # what the program says besides
                name, seconds = json.loads(line)
                if name == program:
                    break
        if seconds is None:
            raise Failed(f"{self.way}: it failed: {self.last_words()}")
        return seconds

    def last_words(self):
        self.errors.seek(0)
        return last_lines(self.errors.read())

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # the session that was started here
            self.process.wait()

    def end(self):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.kill()
        self.process.stdout.close()
        self.errors.close()


class Measurement:
    def __init__(self, daemons, options):
        self.daemons, self.options = daemons, options
        self.names = []
        for way in options.ways:
            self.names.append(way)
            if options.other and way != "native":
                self.names.append(way + OTHER)
        programs = [*options.alone, *options.programs]
        # {program: {way: [seconds of a round, None where it failed]}}
        self.results = {name: {way: [] for way in self.names} for name in programs}
        self.failures = []
        self.begin = time.monotonic()
        self.done = 0
        # Loading takes about as long as the rounds behind it.
        self.parts = len(options.alone) * options.rounds
        if options.programs:
            self.parts += options.starts * 2 * options.rounds

    def try_to(self, program, work, *arguments):
        """The outcome of `work`, None if it fails."""
        try:
            return work(*arguments)
        except Failed as failure:
            self.failures.append(f"{program}, {failure}")
            return None

    @contextlib.contextmanager
    def ways(self, number):
        """A process for each way, ready; the first of them takes turns by `number`."""
        names = self.names
        names = names[number % len(names) :] + names[: number % len(names)]
        with contextlib.ExitStack() as stack:
            ways = []
            for name in names:
                ways.append(Way(name, self.daemons, self.options))
                stack.callback(ways[-1].end)
            for way in ways:
                self.try_to("start", way.ready)
            yield ways

    def round(self, program, ways):
        for way in ways:
            way.ask(program)
            self.results[program][way.way].append(self.try_to(program, way.seconds, program))

    def alone(self):
        for number in range(self.options.rounds):
            for program in self.options.alone:
                with self.ways(number) as ways:
                    self.round(program, ways)
                self.progress(1)

    def together(self):
        for _ in range(self.options.starts):
            with self.ways(0) as ways:
                for program in self.options.programs:
                    for way in ways:
                        way.ask(program)
                    for way in ways:
                        self.try_to(program, way.seconds, program)
                self.progress(self.options.rounds)
                for number in range(self.options.rounds):
                    for program in self.options.programs:
                        self.round(program, ways)
                    # Each way comes before and behind its neighbour, and each way comes first.
                    if number % 2:
                        ways.append(ways.pop(0))
                    ways.reverse()
                    self.progress(1)

    def progress(self, parts):
        self.done += parts
        passed = time.monotonic() - self.begin
        left = passed / self.done * (self.parts - self.done)
        print(
            f"{self.done} of {self.parts}: {passed:.0f} s, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
        # What there is, should the time end.
        if self.options.json:
            self.options.json.write_text(json.dumps(self.results, indent=1) + "\n")


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


def median_bounds(values):
    """Those of an interval that contains the median of what `values` were drawn from in at least
    95 % of cases; of few values, the lowest and the highest."""
    count, values = len(values), sorted(values)
    outside, below = 0, 0  # chance that at most `below` of the values lie under the median
    while below < count // 2 and outside + math.comb(count, below) / 2**count <= 0.025:
        outside += math.comb(count, below) / 2**count
        below += 1
    low = max(below - 1, 0)
    return values[low], values[count - 1 - low]


def ratio_cell(values, others):
    pairs = [pair for pair in zip(values, others, strict=True) if None not in pair]
    if not pairs:
        return ""
    ratios = [value / other for value, other in pairs]
    low, high = median_bounds(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}, {len(pairs)} rounds)"


def ratio_table(results, ways):
    """Markdown: the first build beside the other one."""
    lines = ["| program | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for program, row in results.items():
        cells = [ratio_cell(row[way], row[way + OTHER]) for way in ways]
        lines.append(f"| {program} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(results, ways):
    """Markdown."""
    lines = ["| program | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for program, row in results.items():
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
    parser.add_argument("--other", type=path, metavar="DIR", help="a build to compare with")
    parser.add_argument(
        "--where",
        choices=("gpu", "sim"),
        default="gpu",
        help="the machine's GPU, or a simulated one, whose driver is then also the native one",
    )
    parser.add_argument("--rounds", type=int, default=7, help="behind each start")
    parser.add_argument(
        "--runs", type=int, help="of a timed part in each round (default: as its program says)"
    )
    parser.add_argument("--starts", type=int, default=3, help="of the processes of all ways")
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--alone", nargs="*", default=ALONE, help="each in a process of its own")
    parser.add_argument("--folder", type=path, default=APPS, help="where the programs are")
    parser.add_argument(
        "--imports", nargs="*", default=["torch"], help="modules that each process has from start"
    )
    parser.add_argument("--json", type=path, help="write seconds by program, way and round")
    parser.add_argument("--inside", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    options.folder = options.folder.resolve()
    if options.inside is not None:
        run_inside(options.inside, options.folder, options.runs)
        return 0
    builds = [options.build_dir, options.other] if options.other else [options.build_dir]
    with contextlib.ExitStack() as stack:
        daemons = []
        for build in map(pathlib.Path.resolve, builds):
            work = stack.enter_context(tempfile.TemporaryDirectory(prefix="fargpu-programs-"))
            driver = build / "lib" / "libfargpu-sim.so" if options.where == "sim" else None
            daemons.append(Daemon(build, pathlib.Path(work), driver))
            stack.callback(daemons[-1].stop)
            daemons[-1].start()
        measurement = Measurement(daemons, options)
        measurement.alone()
        if options.programs:
            measurement.together()
    where = "simulated GPU" if options.where == "sim" else machine()
    print(f"{where}, {options.starts} starts, {options.rounds} rounds in turn behind each\n")
    print(table(measurement.results, measurement.names))
    if options.other:
        print("\n" + ratio_table(measurement.results, [w for w in options.ways if w != "native"]))
    for failure in dict.fromkeys(measurement.failures):
        print("failed: " + failure, file=sys.stderr)
    return 1 if measurement.failures else 0


if __name__ == "__main__":
    sys.exit(main())
