"""FARGPU_TRACE=FILE.json: a timeline with lanes of the program's threads, the wire and the workers.
Client and server are on one host here, so that all lanes have one clock without any doubt."""

import itertools
import json
import pathlib
import tempfile
import unittest

import fargpu_testing as testing

COUNT = 50
USAGE = 2
COPY_TO_HOST = "cuMemcpyDtoH_v2"


class Interval:
    """A slice of the timeline. Times are nanoseconds."""

    def __init__(self, event, end=None):
        self.name, self.args = event["name"], event.get("args", {})
        self.begin = round(event["ts"] * 1000)
        self.end = self.begin + round(event["dur"] * 1000) if end is None else round(end * 1000)

    def holds(self, other):
        return self.begin <= other.begin <= other.end <= self.end


class Lanes:
    def __init__(self, text):
        self.events = json.loads(text)
        self.names = {
            e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"
        }
        self.calls = [Interval(e) for e in self.events if e.get("cat") == "cuda"]
        self.waited = [c for c in self.calls if c.args["fargpu"]["way"] == "waited"]
        self.workers = sorted(pid for pid, name in self.names.items() if "worker of" in name)

    def work(self, worker=0, posted=False):
        """What the executor did, in order."""
        thread = 2 if posted else 1
        found = [
            Interval(e)
            for e in self.events
            if e.get("cat") == "worker" and (e["pid"], e["tid"]) == (self.workers[worker], thread)
        ]
        return sorted(found, key=lambda each: (each.begin, each.end))

    def wire(self, name):
        """{number of the frame: the interval}"""
        ends = {}
        for e in self.events:
            if e.get("cat") == "wire" and e["name"] == name and e["ph"] == "e":
                ends[e["pid"], e["id2"]["local"]] = e["ts"]
        return {
            e["args"]["sequence"]: Interval(e, end=ends.pop((e["pid"], e["id2"]["local"])))
            for e in self.events
            if e.get("cat") == "wire" and e["name"] == name and e["ph"] == "b"
        }

    def notes(self, text):
        return [e for e in self.events if e["ph"] == "i" and text in e["name"]]


class Timelines(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="fargpu-timeline-")
        self.addCleanup(scratch.cleanup)
        self.file = pathlib.Path(scratch.name) / "calls.json"

    def traced(self, program, *arguments, servers=None, **variables):
        """(the lanes, stderr)"""
        with testing.Daemon() as daemon:
            done = testing.run(
                [testing.BUILD.fargpu, "run", "--server", servers or daemon.server, "--"]
                + [testing.BUILD.program(program), *map(str, arguments)],
                env=testing.clean_environment(FARGPU_TRACE=str(self.file), **variables),
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return Lanes(self.file.read_text()), done.stderr


@testing.not_with_an_older_release("0.2.0 makes no timeline")
class Timeline(Timelines):
    def is_sound(self, lanes):
        for posted in (False, True):
            work = lanes.work(posted=posted)
            for one, following in itertools.pairwise(work):
                self.assertLessEqual(one.end, following.begin, (one.name, following.name))
        for note in lanes.notes("clocks"):
            # One host has one clock, and half a round trip is what can be known of another one.
            offset, round_trip = note["args"]["offset_ns"], note["args"]["round_trip_ns"]
            self.assertLessEqual(abs(offset), round_trip / 2 + 1)

    def test_calls_that_waited_have_work_of_the_worker(self):
        lanes, errors = self.traced("waits", COUNT, 0, 1, 0)
        self.assertEqual(errors, "")
        self.is_sound(lanes)
        self.assertGreaterEqual(len(lanes.waited), COUNT)
        for call in lanes.waited:
            self.assertTrue(any(call.holds(work) for work in lanes.work()), call.name)
        self.assertEqual(len(lanes.notes("")), len(lanes.notes("clocks")))

    def test_calls_say_how_they_were_answered(self):
        lanes, _ = self.traced("waits", COUNT, 0, 1, 0)
        ways = {c.name: c.args["fargpu"] for c in lanes.calls}
        self.assertEqual(ways["cuCtxSetCurrent"]["way"], "local")
        self.assertEqual(ways["cuMemsetD32Async"]["way"], "sent")
        copy = ways[COPY_TO_HOST]
        self.assertEqual(
            (copy["way"], copy["bytes_sent"], copy["bytes_received"]), ("waited", 0, 4)
        )
        fills = [work for work in lanes.work() if work.name == "cuMemsetD32Async"]
        self.assertEqual(len(fills), COUNT)
        self.assertEqual({fill.args["opcode"] for fill in fills}, {ways[fills[0].name]["opcode"]})

    def test_the_wire_is_between_client_and_worker(self):
        lanes, _ = self.traced("waits", COUNT, 0, 1, 0)
        requests, waits, answers = (lanes.wire(name) for name in ("request", "waits", "answer"))
        work = {each.args["sequence"]: each for each in lanes.work()}
        self.assertGreaterEqual(len(requests), 2 * COUNT)
        for sequence, request in requests.items():
            self.assertEqual(request.end, work[sequence].begin)
        copies = [c for c in lanes.calls if c.name == COPY_TO_HOST]
        frames = [s for s, r in requests.items() if any(c.holds(r) for c in copies)]
        self.assertEqual(len(frames), COUNT)
        for sequence in frames:
            before = waits[sequence] if sequence in waits else work[sequence]
            self.assertEqual(answers[sequence].begin, before.end)
            self.assertTrue(any(c.holds(answers[sequence]) for c in copies))

    def test_threads_and_host_functions(self):
        for program, arguments in (("waits", (COUNT, 2, 4, 0)), ("reported", (3,))):
            with self.subTest(program=program):
                lanes, errors = self.traced(program, *arguments)
                self.assertNotIn("timeline", errors)
                self.is_sound(lanes)
        # It waits for a function of the program: the answer comes from what was posted.
        self.assertTrue(lanes.work(posted=True))
        self.assertTrue(lanes.wire("waits"))

    def test_records_are_fetched_in_between(self):
        lanes, errors = self.traced("waits", 4 * COUNT, 0, 1, 0, FARGPU_TRACE_RECORDS="64")
        self.assertEqual(errors, "")
        self.is_sound(lanes)
        self.assertGreater(len(lanes.notes("clocks")), 4)
        fills = [work for work in lanes.work() if work.name == "cuMemsetD32Async"]
        self.assertEqual(len(fills), 4 * COUNT)

    def test_dropped_records_are_told(self):
        lanes, errors = self.traced("waits", COUNT, 0, 1, 0, FARGPU_TRACE_RECORDS="4")
        self.is_sound(lanes)
        (note,) = lanes.notes("records had no room")
        self.assertGreater(note["args"]["dropped"], 0)
        self.assertIn(f"{note['args']['dropped']} records had no room", errors)

    def test_a_wrong_number_of_records(self):
        with testing.Daemon() as daemon:
            for number in ("0", "1048577"):
                environment = testing.clean_environment(FARGPU_TRACE_RECORDS=number)
                done = daemon.run(
                    testing.BUILD.program("waits"), "1", "0", "1", "0", env=environment
                )
                self.assertNotEqual(done.returncode, 0)
                wrong = f"FARGPU_TRACE_RECORDS: {number} is not between 1 and 1048576"
                self.assertIn(wrong, done.stderr)

    def test_each_server_has_lanes(self):
        with testing.Daemon() as a, testing.Daemon() as b:
            servers = f"{a.server},{b.server}"
            lanes, _ = self.traced("two_servers", "devices", servers=servers)
            names = [lanes.names[worker] for worker in lanes.workers]
            self.assertEqual(len(names), 2)
            for name, server in zip(names, (a.server, b.server), strict=True):
                self.assertIn(f"worker of {server} ", name)
        for worker in range(2):
            self.assertTrue(lanes.work(worker))

    def test_a_forked_child_leaves_the_file_whole(self):
        lanes, _ = self.traced("fork_child")
        self.is_sound(lanes)
        self.assertEqual(len(lanes.workers), 1)

    def test_bench_app_makes_one(self):
        program = [testing.BUILD.program("waits"), str(COUNT), "0", "1", "0"]
        with testing.Daemon() as daemon:
            command = [testing.BUILD.fargpu, "bench", "app", "--server", daemon.server]
            done = testing.run([*command, "--timeline", self.file, "--", *program])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(f"timeline: {self.file}, to be opened in Perfetto", done.stdout)
            # What the timeline itself asks is none of the program's waits.
            functions = [line for line in done.stdout.splitlines() if "Timeline" in line]
            self.assertEqual(functions, [])
            other = testing.run([*command, "--timeline", "calls.txt", "--", *program])
            self.assertEqual(other.returncode, USAGE)
        lanes = Lanes(self.file.read_text())
        self.is_sound(lanes)
        self.assertGreaterEqual(len(lanes.waited), COUNT)

    def test_bench_app_makes_it_where_it_was_started(self):
        program = [testing.BUILD.program("waits"), str(COUNT), "0", "1", "0"]
        elsewhere = ["sh", "-c", 'cd / && exec "$0" "$@"', *program]
        with testing.Daemon() as daemon:
            command = [testing.BUILD.fargpu, "bench", "app", "--server", daemon.server]
            done = testing.run(
                [*command, "--timeline", self.file.name, "--", *elsewhere], cwd=self.file.parent
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            missing = self.file.parent / "missing" / "calls.json"
            refused = testing.run([*command, "--timeline", missing, "--", *program])
            self.assertNotEqual(refused.returncode, 0)
        self.assertGreaterEqual(len(Lanes(self.file.read_text()).waited), COUNT)


if __name__ == "__main__":
    testing.main()
