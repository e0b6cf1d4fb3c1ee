"""What bench/driver_waits finds out about the simulated driver: the cases that wait are those of
simulated.txt, and the others return. That tests the program and the simulated driver.

    test_driver_waits.py PROGRAM FOLDER_OF_LIBCUDA

FARGPU_TEST_UPDATE=1 writes what came out into simulated.txt."""

import os
import pathlib
import re
import sys
import unittest

import fargpu_testing as testing

FILE = pathlib.Path(__file__).parent / "simulated.txt"
RUNS = [
    ["--only", "calls", "--held-by", "function"],
    ["--only", "streams", "--held-by", "value", "--case", " 4 B"],
    ["--only", "queues", "--held-by", "value"],
    ["--only", "graphs", "--held-by", "node"],
    ["--only", "graphs", "--held-by", "function", "--case", "kernel, host, kernel:"],
    ["--only", "graphs", "--held-by", "function", "--case", "host, host |"],
]
UPDATE = bool(os.environ.get("FARGPU_TEST_UPDATE"))
TRIES = 3  # on a busy machine a call may seem to wait
PROGRAM, LIBRARIES = (pathlib.Path(argument) for argument in sys.argv[1:3])


def run(*arguments, **simulation):
    environment = testing.clean_environment(LD_LIBRARY_PATH=LIBRARIES, **simulation)
    return testing.run([PROGRAM, *arguments], env=environment)


def answers(done):
    """{case: answer}, without times and without the calls that wait, too."""
    what_varies = re.compile(r"(?: in|,) [0-9.]+ ms(?: after the release)?|; stopped: .*")
    lines = (line.split(" -> ") for line in done.stdout.splitlines())
    return {case: what_varies.sub("", answer) for case, answer in lines}


def is_quiet(answer):
    return answer == "returns" or answer.startswith("does not wait")


class DriverWaits(unittest.TestCase):
    def ask(self, arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        return answers(done)

    def test_the_simulated_driver_waits_as_the_file_says(self):
        head, rows = re.match(r"((?:#.*\n)*)((?:.*\n)*)", FILE.read_text()).groups()
        if UPDATE:
            found = (case for arguments in RUNS for case in self.ask(arguments).items())
            FILE.write_text(head + "".join(f"{c} -> {a}\n" for c, a in found if not is_quiet(a)))
            return
        expected = dict(row.split(" -> ") for row in rows.splitlines())
        asked = set()
        for arguments in RUNS:
            wrong = None
            for _ in range(TRIES):
                found = self.ask(arguments)
                asked |= found.keys()
                wrong = {
                    case: answer
                    for case, answer in found.items()
                    if (wrong is None or case in wrong)
                    and not (answer == expected[case] if case in expected else is_quiet(answer))
                }
                if not wrong:
                    break
            self.assertFalse(wrong)
        self.assertLessEqual(expected.keys(), asked)

    def test_locks_that_a_driver_keeps_while_it_waits_show(self):
        waiting = ("--only", "calls", "--held-by", "value", "--case", "cuMemFree 1 MiB")
        self.assertRegex(run(*waiting).stdout, "waits, .*; stopped: nothing")
        locked = run(*waiting, FARGPU_SIM_LOCKED_WAITS=1).stdout
        self.assertRegex(locked, "waits, .*; stopped: .*cuLaunchKernel.*cuGraphLaunch")

    def test_a_copy_to_pageable_memory_stops_host_functions(self):
        case = "cuMemcpyDtoHAsync pageable 4 B"
        copy = ("--only", "streams", "--held-by", "function", "--case", case)
        self.assertNotIn("stopped: cuLaunchHostFunc", run(*copy).stdout)
        stopped = run(*copy, FARGPU_SIM_STREAM_WAITS=1).stdout
        self.assertIn("; stopped: cuLaunchHostFunc\n", stopped)

    def test_a_case_that_fails_costs_its_process_only(self):
        of_a_value = ("--only", "calls", "--held-by", "value")
        done = run(*of_a_value, "--case", "MiB", FARGPU_SIM_MEMORY="200M")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cuMemFree 256 MiB -> error 2 from cuMemFree 256 MiB\n", done.stdout)
        self.assertIn("cuMemHostUnregister 4 MiB -> waits", done.stdout)

    def test_wrong_usage_is_2(self):
        self.assertEqual(run("--only", "nothing").returncode, 2)
        self.assertEqual(run("--only", "calls", FARGPU_SIM_GPUS=0).returncode, 2)

    def test_help_and_list_ask_nothing(self):
        self.assertIn("Exit codes: 0", run("--help").stdout)
        listed = run("--list", "--only", "streams", "--held-by", "kernel").stdout
        self.assertIn("cuMemcpyDtoHAsync pageable 4 B\n", listed)
        self.assertNotIn("->", listed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
