"""How many instructions calls cost the program that makes them, in the client, beside counts.yml: a
class of calls that takes a tenth more has become dearer. Counts, unlike times, are the same on a
busy machine. Waiting ends sleep, since a spinning one counts how long it waits. Both ends are on
one processor: the one that is woken answers at once there, as on a busy machine. On an idle one it
wakes on another processor, and the program looks for the answer before it is there, which counts.
Calls that wait still differ by a fifth with what else runs: their figures are those of a busy
machine.

FARGPU_TEST_UPDATE=1 writes the figures of this machine into counts.yml."""

import os
import pathlib
import re
import tempfile
import unittest

import fargpu_testing as testing
import yaml

FILE = pathlib.Path(__file__).parent / "counts.yml"
UPDATE = bool(os.environ.get("FARGPU_TEST_UPDATE"))
TRANSPORT = os.environ["FARGPU_TEST_TRANSPORT"]
COMPILER = os.environ["FARGPU_TEST_COMPILER"]
CALLS = 100  # of a round, as in call_counts.cc
DEARER = 1.10
TRIES = 5
RUNS_OF_UPDATE = 6


def dumped(folder):
    """{class: instructions of a call in the round that took fewest}."""
    counts = {}
    for file in folder.iterdir():
        text = file.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (\w+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)$", text, re.MULTILINE)
        if name and total:
            here = round(int(total[1]) / CALLS)
            counts[name[1]] = min(here, counts.get(name[1], here))
    return counts


def measured(daemon):
    """The same of one run."""
    with tempfile.TemporaryDirectory(prefix="fargpu-counts-") as folder:
        done = daemon.run(
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--collect-atstart=no",
            f"--callgrind-out-file={folder}/counts",
            testing.BUILD.program("call_counts"),
            env=testing.clean_environment(FARGPU_SPIN="0"),
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return dumped(pathlib.Path(folder))


def update(known, daemon):
    """The most that a call takes in any of several runs: a wait has more than one way to end."""
    runs = [measured(daemon) for _ in range(RUNS_OF_UPDATE)]
    most = {name: max(run[name] for run in runs) for name in sorted(runs[0])}
    known |= {"compiler": COMPILER, TRANSPORT: most}
    head = re.match(r"(#.*\n)*", FILE.read_text())[0]
    FILE.write_text(head + yaml.safe_dump(known, sort_keys=False))


class CallCounts(unittest.TestCase):
    def test_counts(self):
        known = yaml.safe_load(FILE.read_text())
        if not UPDATE and known["compiler"] != COMPILER:
            self.skipTest(f"the counts are of {known['compiler']}, this is {COMPILER}")
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        with testing.Daemon(environment={"FARGPU_SPIN": "0"}) as daemon:
            if UPDATE:
                update(known, daemon)
                return
            counts = {}
            for _ in range(TRIES):
                found = measured(daemon)
                self.assertEqual(found.keys(), known[TRANSPORT].keys())
                # Of all rounds so far, as of those of a run: the one that took fewest.
                counts = {name: min(here, counts.get(name, here)) for name, here in found.items()}
                dearer = {
                    name: f"{count} instructions, not {known[TRANSPORT][name]}"
                    for name, count in counts.items()
                    if count > known[TRANSPORT][name] * DEARER
                }
                if not dearer:
                    break
        self.assertEqual(dearer, {}, "if that is right, run this test with FARGPU_TEST_UPDATE=1")


if __name__ == "__main__":
    testing.main()
