"""`fargpu bench app`: what it counts, and that its predictions are made of that. How fast anything
is, is not tested: bench/predict.sh compares predictions with times."""

import json
import pathlib
import tempfile
import time
import unittest

import fargpu_testing as testing

USAGE = 2
COUNT, COPIES = 40, 3
COPY_TO_HOST = "cuMemcpyDtoH_v2"


def only(values, **wanted):
    (found,) = [v for v in values if all(v[name] == wanted[name] for name in wanted)]
    return found


class BenchApp(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="fargpu-app-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def bench(self, *arguments, flags=(), **variables):
        with testing.Daemon() as daemon:
            return testing.run(
                [testing.BUILD.fargpu, "bench", "app", "--server", daemon.server, *flags, "--"]
                + [str(each) for each in arguments],
                env=testing.clean_environment(**variables),
            )

    def predicted(self, *arguments, flags=(), **variables):
        """(what was printed, the file)"""
        file = self.folder / "predicted.json"
        program = testing.BUILD.program("waits")
        done = self.bench(program, *arguments, flags=("--json", file, *flags), **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, json.loads(file.read_text())

    def report(self, *arguments, link="rtt=0us"):
        file = self.folder / "report.json"
        file.unlink(missing_ok=True)
        with testing.Daemon() as daemon:
            begin = time.monotonic()
            done = daemon.run(
                testing.BUILD.program("waits"),
                *map(str, arguments),
                flags=(f"--report={file}",),
                env=testing.clean_environment(FARGPU_LINK=link),
            )
            seconds = time.monotonic() - begin
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(file.read_text()), seconds

    def test_waits_and_bytes_are_those_of_the_program(self):
        few, _ = self.report(0, 0, 1, 0)
        many, _ = self.report(COUNT, COPIES, 1, 0)
        copy = only(many["functions"], name=COPY_TO_HOST)
        self.assertGreaterEqual(copy["waited"], COUNT + COPIES)
        self.assertEqual(copy["bytes_received"], COUNT * 4 + COPIES * (1 << 20))
        self.assertGreaterEqual(copy["inside_ns"], copy["waited_ns"])
        route = only(many["copies"], to_device=True)
        self.assertEqual((route["route"], route["bytes"]), ("frames", COPIES << 20))
        waits = many["link"]["round_trips"] - few["link"]["round_trips"]
        self.assertGreaterEqual(waits, COUNT + COPIES)
        # One thread at a time waits: the program's first one does nothing while the other works.
        self.assertEqual(many["link"]["in_a_row"], many["link"]["round_trips"])
        slowest = many["link"]["rates"][0]
        self.assertEqual(slowest["bits_per_second"], 1e9)
        # What comes back passes behind the question; what goes there may pass meanwhile, so the two
        # estimates are not in any order.
        self.assertGreaterEqual(slowest["in_order_ns"], COPIES * (8 << 20))
        self.assertGreater(slowest["overlapped_ns"], 0)

    def test_waits_of_threads_overlap(self):
        link = self.report(COUNT, 0, 4, 0, link="rtt=5ms")[0]["link"]
        self.assertGreaterEqual(link["round_trips"], 4 * COUNT)
        self.assertLess(link["in_a_row"], 3 * COUNT)
        self.assertLessEqual(link["most_of_a_thread"], link["in_a_row"])
        self.assertGreaterEqual(link["most_of_a_thread"], COUNT)

    def test_other_links_have_the_same_waits_and_take_their_time(self):
        plain = self.report(COUNT, COPIES, 1, 0)[0]["link"]
        for link, rtt in (("rtt=20ms", 20e-3), ("rtt=5ms,bandwidth=1Gbps", 5e-3)):
            with self.subTest(link=link):
                emulated, seconds = self.report(COUNT, COPIES, 1, 0, link=link)
                self.assertEqual(emulated["link"]["in_a_row"], plain["in_a_row"])
                # What a link takes cannot be less, however fast the machine is.
                self.assertGreater(seconds, plain["in_a_row"] * rtt)

    def test_predictions_are_made_of_the_waits(self):
        links = ["--link=rtt=3ms", "--link=rtt=5ms", "--link=rtt=5ms,bandwidth=1Gbps"]
        out, file = self.predicted(COUNT, COPIES, 1, 0, flags=links)
        first, second, slow = file["links"][:3]
        waits = (second["nanoseconds"] - first["nanoseconds"]) / 2e6
        self.assertAlmostEqual(waits, round(waits), places=3)
        self.assertGreaterEqual(waits, COUNT + COPIES)
        self.assertAlmostEqual(
            first["nanoseconds"] - file["nanoseconds"], 3e6 * round(waits), delta=10
        )
        more = slow["longest"] - second["longest"]
        self.assertGreaterEqual(more, COPIES * (8 << 20))
        self.assertIn(f"round trips     {round(waits)}: ", out)
        self.assertRegex(out, rf"\d+ waits in {COPY_TO_HOST}, \S+ \w+ each: \d+ % of the time")
        for bandwidth in (10, 25, 100, 200, 400):
            self.assertIn(f"{bandwidth} Gb/s", out)

    def test_the_measured_link_is_taken_off(self):
        flags = ("--measured-rtt=1ms", "--link=rtt=3ms")
        _, file = self.predicted(COUNT, 0, 1, 0, flags=flags, FARGPU_LINK="rtt=2ms")
        self.assertEqual(file["rtt_ns"], 3e6)
        self.assertAlmostEqual(file["links"][0]["nanoseconds"], file["nanoseconds"], delta=10)

    def test_a_fit_runs_again(self):
        _, file = self.predicted(0, 100, 1, 0, flags=("--fit",))
        # One thread waits, so that only bytes are open, if they matter at this machine's pace.
        self.assertIn([fit["bits_per_second"] for fit in file["fits"]], ([5e9], []))
        for fit in file["fits"]:
            self.assertGreater(fit["nanoseconds"], 0)
        for share in file["shares"].values():
            self.assertTrue(0 <= share <= 1)

    def test_a_program_that_fails(self):
        done = self.bench("sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7)
        self.assertIn("nothing is predicted, because the program failed", done.stderr)

    def test_a_program_without_calls(self):
        done = self.bench("true")
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("no process of the program reported a call", done.stderr)

    def test_wrong_links(self):
        for flag in ("--link", "--at"):
            done = self.bench("true", flags=(flag, "fast"))
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(f"{flag}: 'fast'", done.stderr)


if __name__ == "__main__":
    testing.main()
