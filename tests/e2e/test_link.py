"""FARGPU_LINK: programs behave the same over an emulated link, only slower."""

import time
import unittest

import fargpu_testing as testing


class EmulatedLink(unittest.TestCase):
    def run_over(self, daemon, program, link, *flags):
        begin = time.monotonic()
        done = daemon.run(
            testing.BUILD.program(program),
            flags=flags,
            env=testing.clean_environment(FARGPU_LINK=link) if link else None,
        )
        return done, time.monotonic() - begin

    def test_programs_are_right(self):
        with testing.Daemon() as daemon:
            for transport in ("auto", "tcp"):
                for name in ("vector_add", "copies", "streams_events", "callbacks", "printf_order"):
                    with self.subTest(program=name, transport=transport):
                        done, _ = self.run_over(
                            daemon, name, "rtt=200us,bandwidth=2Gbps", "--transport", transport
                        )
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_round_trips_take_their_time(self):
        # What a link takes cannot be less, however fast the machine is.
        with testing.Daemon() as daemon:
            done, seconds = self.run_over(daemon, "vector_add", "rtt=200ms")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertGreater(seconds, 0.4)  # at least an allocation and a copy back

    def test_wrong_setting(self):
        with testing.Daemon() as daemon:
            done, _ = self.run_over(daemon, "vector_add", "20us")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("FARGPU_LINK: '20us': neither rtt=, bandwidth= nor jitter=", done.stderr)


if __name__ == "__main__":
    testing.main()
