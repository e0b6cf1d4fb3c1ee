"""FARGPU_WATCHDOG: a call that takes too long is named, with what the worker does meanwhile."""

import unittest

import fargpu_testing as testing


class Watchdog(unittest.TestCase):
    def watch(self, daemon, limit, *arguments):
        environment = testing.clean_environment(FARGPU_WATCHDOG=limit)
        done = daemon.run(testing.BUILD.program("watched"), *arguments, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_a_long_wait_is_named(self):
        with testing.Daemon() as daemon:
            done = self.watch(daemon, "300ms")
        lines = [line for line in done.stderr.splitlines() if "watchdog" in line]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], r"thread \d+ has been in cuStreamSynchronize for 0\.\d s, ")
        self.assertIn(f"stream {done.stdout.split()[-1]};", lines[0])
        self.assertRegex(lines[0], r"the worker waits for cuStreamSynchronize \(0\.\d s\); 0 host")

    def test_a_host_function_is_named(self):
        with testing.Daemon() as daemon:
            done = self.watch(daemon, "300ms", "host-function")
        self.assertIn("1 host functions in streams", done.stderr)
        self.assertIn("functions of the program are in streams or running", done.stderr)

    def test_nothing_is_said_of_short_calls(self):
        with testing.Daemon() as daemon:
            self.assertNotIn("watchdog", self.watch(daemon, "60s").stderr)

    def test_wrong_setting(self):
        with testing.Daemon() as daemon:
            environment = testing.clean_environment(FARGPU_WATCHDOG="soon")
            done = daemon.run(testing.BUILD.program("watched"), env=environment)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("FARGPU_WATCHDOG", done.stderr)


if __name__ == "__main__":
    testing.main()
