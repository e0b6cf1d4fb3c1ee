"""Sequences of driver calls in the manner of frameworks (sequences/*.yml): how many calls of a step
wait for the server, and over tcp by which route copies to the device travel, and how many round
trips some calls make. docs/waits.md shows the waits (scripts/waits_page.py)."""

import collections
import json
import os
import pathlib
import sys
import tempfile
import unittest

import fargpu_testing as testing
import yaml

HERE = pathlib.Path(__file__).resolve().parent
FEW, MANY = 5, 15  # steps: few enough that no call waits for room in a queue
TRANSPORT = os.environ["FARGPU_TEST_TRANSPORT"]


class CallSequences(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon(gpus=1).__enter__()
        cls.addClassCleanup(cls.daemon.__exit__, None, None, None)

    def counts(self, sequence, steps):
        """(calls that waited, copies to the device, round trips), by function or route."""
        with tempfile.TemporaryDirectory(prefix="fargpu-sequences-") as folder:
            path = pathlib.Path(folder) / "report.json"
            done = self.daemon.run(
                sys.executable,
                "-B",
                HERE / "programs" / "play_calls.py",
                sequence,
                steps,
                env=testing.clean_environment(FARGPU_REPORT=path),
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            report = json.loads(path.read_text().splitlines()[-1])
        waited = collections.Counter({each["name"]: each["waited"] for each in report["functions"]})
        copies = {each["route"]: each["copies"] for each in report["copies"] if each["to_device"]}
        trips = {each["name"]: each["round_trips"] for each in report["functions"]}
        return waited, collections.Counter(copies), collections.Counter(trips)

    def test_calls_that_wait(self):
        files = sorted((HERE / "sequences").glob("*.yml"))
        self.assertGreater(len(files), 4)
        for file in files:
            known = yaml.safe_load(file.read_text())
            with self.subTest(file.stem):
                few, many = (self.counts(file, steps) for steps in (FEW, MANY))
                waited, copies, trips = (
                    {name: (many[i][name] - few[i][name]) / (MANY - FEW) for name in many[i]}
                    for i in (0, 1, 2)
                )
                waits = known.get(f"waits_{TRANSPORT}", known["waits"])
                self.assertEqual(sum(waited.values()), waits, waited)
                if TRANSPORT == "tcp":
                    self.assertEqual({k: v for k, v in copies.items() if v}, known["copies"])
                    for name, count in known.get("round_trips", {}).items():
                        self.assertEqual(trips[name], count, name)


if __name__ == "__main__":
    testing.main()
