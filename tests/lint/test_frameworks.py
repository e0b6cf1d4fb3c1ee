"""The results of frameworks: what scripts/gpu-suite enters, and the page that is made of it."""

import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import types
import unittest

import framework_results
import frameworks_page
import gpu_runs

NAME = "torch_first_tensor"  # a workload that is described
WRONG = {"result": "wrong", "reason": "one value differs", "date": "d1", "machine": "m1"}
RIGHT = {"result": "right", "date": "d2", "machine": "m2"}


def load_suite():
    path = str(framework_results.ROOT / "scripts" / "gpu-suite")
    loader = importlib.machinery.SourceFileLoader("gpu_suite", path)
    suite = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_suite", loader))
    sys.modules["gpu_suite"] = suite  # its data classes look for it
    loader.exec_module(suite)
    return suite


SUITE = load_suite()


def outcome(code=0, values=(1.0,)):
    stdout = json.dumps({"values": values, "seconds": 1.0}) + "\n"
    return gpu_runs.Outcome(code, stdout, "the last word", 1.0)


def rows(row, result):
    """{title of a table: its rows} on the page of one workload."""
    page = frameworks_page.page({"workload": [{"name": "x", "title": "X"} | row]}, {"x": result})
    tables = {part.split("\n")[0]: part for part in page.split("\n## ")[1:]}
    return {title: text.strip().split("\n")[4:] for title, text in tables.items()}


class Merge(unittest.TestCase):
    def merged(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.json")
            with open(path, "w") as file:
                file.write("{}")
            for result in results:
                framework_results.merge(path, NAME, result)
            return framework_results.load(path)[NAME]

    def test_one_transport_leaves_what_is_known_of_the_other(self):
        known = {"native": "runs", "shm": WRONG, "tcp": RIGHT | {"note": "by an earlier program"}}
        found = {"native": "runs", "shm": RIGHT}
        self.assertEqual(self.merged(known, found), known | {"shm": RIGHT})

    def test_a_native_failure(self):
        failure = {"native": "fails", "reason": "no", "date": "d3", "machine": "m3"}
        known = {"native": "runs", "shm": WRONG}
        self.assertEqual(self.merged(known, failure), failure | {"shm": WRONG})
        # Nothing of it stays when it runs again.
        again = {"native": "runs", "shm": RIGHT}
        self.assertEqual(self.merged(known, failure, again), again)


class Page(unittest.TestCase):
    def test_what_works(self):
        both = {"native": "runs", "shm": RIGHT, "tcp": RIGHT}
        found = rows({"tolerance": 1e-4}, both)
        self.assertEqual(found, {"What works": ["| X | right | right | 0.0001 | d2, m2 |"]})
        self.assertIn("| equal |", rows({"tolerance": 0.0}, both)["What works"][0])
        self.assertIn("| spread |", rows({}, both)["What works"][0])

    def test_times(self):
        timed = RIGHT | {"seconds": 0.0123, "native_seconds": 0.01}
        found = rows({}, {"native": "runs", "shm": timed, "tcp": RIGHT})
        line = "| X | right, 0.0123 s x 1.23 | right | spread | d2, m2 |"
        self.assertEqual(found, {"What works": [line]})

    def test_a_transport_that_fails_has_its_own_reason_and_machine(self):
        found = rows({}, {"native": "runs", "shm": WRONG, "tcp": RIGHT})
        line = "| X | wrong | right | one value differs | - | shm: d1, m1; tcp: d2, m2 |"
        self.assertEqual(list(found.values()), [[line]])

    def test_a_transport_that_has_not_run(self):
        found = rows({}, {"native": "runs", "tcp": RIGHT})
        self.assertEqual(list(found), ["What works"])
        self.assertIn("| not run | right |", found["What works"][0])
        self.assertEqual(list(rows({}, {"native": "runs"})), ["What is not known"])


class Suite(unittest.TestCase):
    def measure(self, *outcomes):
        """Over shm, then tcp, after one native run."""
        outcomes = list(outcomes)
        suite = types.SimpleNamespace(
            transports=["shm", "tcp"],
            options=types.SimpleNamespace(gpus=2, first_gpu=1),
            remote=lambda workload, transport: [],
        )
        workload = SUITE.Workload("x", [], 1, 0.0)
        self.gpus = []

        def next_outcome(_command, _limit, environment):
            self.gpus.append(environment["CUDA_VISIBLE_DEVICES"])
            return outcomes.pop(0)

        run, SUITE.run = SUITE.run, next_outcome
        try:
            return SUITE.Suite.measure(suite, workload)
        finally:
            SUITE.run = run

    def test_only_native_runs_choose_among_the_machines_gpus(self):
        """The daemon lends those, and a job's GPUs have numbers from 0."""
        self.measure(outcome(), outcome(), outcome())
        self.assertEqual(self.gpus, ["1,2", "0,1", "0,1"])

    def test_a_row_has_what_ran(self):
        row = self.measure(outcome(), outcome(values=(2.0,)), outcome()).row("m")
        date = row["tcp"]["date"]
        self.assertEqual(row["tcp"], {"result": "right", "date": date, "machine": "m"})
        self.assertEqual(row["shm"]["result"], "wrong")
        self.assertEqual(row["shm"]["reason"], "value 0 is 2.0 instead of 1.0")

    def test_a_row_with_times(self):
        row = self.measure(outcome(), outcome(values=(2.0,)), outcome()).row("m", times=True)
        self.assertEqual((row["tcp"]["seconds"], row["tcp"]["native_seconds"]), (1.0, 1.0))
        self.assertNotIn("seconds", row["shm"])

    def test_the_second_transport_runs_though_the_first_one_hangs(self):
        row = self.measure(outcome(), outcome(gpu_runs.STOPPED), outcome()).row("m")
        self.assertEqual((row["shm"]["result"], row["tcp"]["result"]), ("fails", "right"))

    def test_a_native_failure_says_nothing_of_transports(self):
        row = self.measure(outcome(1)).row("m")
        self.assertEqual(set(row), {"native", "reason", "date", "machine"})

    def test_as_near_as_native_runs(self):
        natives = [outcome(values=(value,)) for value in (1.0, 2.0, 1.5)]
        for value, right in ((0.0, True), (3.0, True), (-0.1, False), (3.1, False)):
            text = SUITE.compare(natives, outcome(values=(value,)), SUITE.NATIVE, "shm")
            self.assertEqual(text == "", right, text)


if __name__ == "__main__":
    unittest.main()
