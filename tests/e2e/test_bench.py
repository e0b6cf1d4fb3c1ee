"""`fargpu bench`: what it measures and writes, what it says of two files, and wrong files. How
fast anything is, is not tested."""

import json
import os
import pathlib
import re
import signal
import tempfile
import time
import unittest

import fargpu_testing as testing

SLOWER, USAGE, UNREACHABLE, BAD_FILE = 1, 2, 69, 78
FIVE_ROUNDS = 5


def bench(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpu, "bench", *arguments], env=testing.clean_environment(**environment)
    )


class Measured(unittest.TestCase):
    """One short run of a few cases; every test looks at another side of it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="fargpu-bench-"))
        cls.addClassCleanup(testing.shutil.rmtree, cls.folder, ignore_errors=True)
        cls.file = cls.folder / "results.json"
        # Python and programs load the simulated driver by itself only where it is no sanitizer's.
        native = ("--native-library", testing.BUILD.sim_libraries)
        if not testing.SIMULATOR_CHOOSES_ADDRESSES:
            native = ("--no-native",)
        cls.has_native = native[0] != "--no-native"
        with testing.Daemon() as daemon:
            cls.done = bench(
                "--server",
                daemon.server,
                "--quick",
                "--time",
                "8s",
                "--only",
                "call_(sync|async)|^launch|graph_launch$|event|threads.*/4|start|first|image|"
                "pageable/4KiB|pinned/(64KiB|1MiB|32MiB)|local_copy/4KiB|sessions.*/4",
                "--json",
                cls.file,
                *native,
            )
        cls.results = json.loads(cls.file.read_text()) if cls.file.exists() else {}
        cls.by_case = {(r["case"], r["way"]): r for r in cls.results.get("results", [])}

    def of(self, case, way):
        self.assertTrue(
            (case, way) in self.by_case,
            f"no {case} of {way}:\n{self.done.stdout}{self.done.stderr}",
        )
        return self.by_case[case, way]

    def ways(self):
        return ["shm", "tcp"] + ["native"] * self.has_native

    def test_it_ends_well(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertEqual(self.done.stderr, "")  # no progress where there is no terminal

    def test_every_case_in_every_way(self):
        for way in self.ways():
            for case in (
                "session_start",
                "first_kernel",
                "image_load_cold",
                "image_load_cached",
                "call_sync",
                "call_async",
                "call_async_done",
                "launch",
                "launch_done",
                "launch_synchronize",
                "graph_launch",
                "event_record_synchronize",
                "threads_launch_synchronize/4",
                "host_to_device_memcpy_ce/pinned/1MiB",
                "device_to_host_memcpy_ce/pageable/4KiB",
                "host_to_device_memcpy_ce/pinned/64KiB",
                "device_to_host_bidirectional_memcpy_ce/pinned/32MiB",
                "device_local_copy/4KiB",
                "call_sync_beside_host_to_device",
                "call_sync_beside_device_to_host",
                "sessions_call_sync/4",
            ):
                with self.subTest(case, way=way):
                    self.assertGreater(self.of(case, way)["samples"], 0)

    def test_figures_agree_with_their_histogram(self):
        for key, result in self.by_case.items():
            with self.subTest(key):
                counts = [count for _, count in result["histogram"]]
                self.assertEqual(sum(counts), result["samples"])
                times = [time for time, _ in result["histogram"]]
                self.assertEqual(times, sorted(times))
                figures = [result[p] for p in ("min", "p50", "p90", "p99", "p99.9", "max")]
                self.assertEqual(figures, sorted(figures))
                low, high = result["median_interval"]
                self.assertLessEqual(low, result["median"])
                self.assertLessEqual(result["median"], high)
                self.assertEqual(result["rounds"], len(result["round_medians"]))
                self.assertEqual(result["unit"], "ns")

    def test_the_bare_link_beside_it(self):
        for transport in ("shm", "tcp"):
            for case in ("call_sync", "host_to_device_memcpy_ce/pinned/1MiB"):
                bare = self.of(case, transport)["bare"]
                self.of(bare, "bare-" + transport)
        self.of("round_trip/32B/4", "bare-tcp")  # beside four sessions
        copy = self.of("host_to_device_memcpy_ce/pinned/1MiB", "tcp")
        self.assertEqual(copy["bare"], "to_server/1MiB/1")
        self.assertEqual((copy["bytes"], copy["memory"]), (1 << 20, "pinned"))
        self.assertAlmostEqual(copy["bytes_per_second"] * copy["median"], copy["bytes"] * 1e9, -9)

    def test_what_the_figures_depend_on(self):
        for name in ("host", "cpu", "cores", "kernel", "clock", "clock_read_ns", "governor"):
            self.assertIn(name, self.results["machine"])
        self.assertIn("simulated", self.results["gpu"]["name"])
        self.assertIn("power_state", self.results["gpu"])
        self.assertEqual(self.results["server"]["version"], self.results["version"])
        self.assertRegex(self.results["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        kinds = {name: way["kind"] for name, way in self.results["ways"].items()}
        self.assertEqual(kinds["tcp"], "fargpu")
        self.assertEqual(kinds["bare-tcp"], "bare")
        for way in ("shm", "tcp"):
            library = pathlib.Path(self.results["ways"][way]["about"]["library"])
            self.assertTrue(library.samefile(testing.BUILD.client_libraries / "libcuda.so.1"))
        self.assertTrue(self.results["ways"]["shm"]["transport"].startswith("shm"))
        self.assertTrue(self.results["ways"]["tcp"]["transport"].startswith("tcp"))

    def test_sessions_and_threads_have_shares(self):
        for case in ("sessions_call_sync/4", "threads_launch_synchronize/4"):
            result = self.of(case, "tcp")
            self.assertEqual(len(result["shares"]), 4)
            self.assertEqual(result["count"], 4)
            self.assertTrue(0.25 <= result["fairness"]["jain"] <= 1)

    def test_what_was_not_measured_has_a_reason(self):
        skipped = {(skip["way"], skip["case"]): skip["why"] for skip in self.results["skipped"]}
        self.assertIn(("rdma", ""), skipped)
        self.assertIn("not measured: rdma: " + skipped["rdma", ""], self.done.stdout)

    def test_the_table_has_the_cases(self):
        self.assertIn("host_to_device_memcpy_ce/pinned/1MiB", self.done.stdout)
        rows = [line.split()[0] for line in self.done.stdout.splitlines()]
        self.assertNotIn("round_trip/32B/1", rows)

    def file_with(self, name, factor_of):
        """A file in which each result has enough rounds and takes factor_of(result) times as long
        as it took."""
        copy = json.loads(json.dumps(self.results))
        for result in copy["results"]:
            median = result["median"] * factor_of(result)
            result["round_medians"] = [median * (1 + i / 1000) for i in range(FIVE_ROUNDS)]
            result["median"] = result["round_medians"][2]
            result["median_interval"] = [min(result["round_medians"]), max(result["round_medians"])]
            result["rounds"] = FIVE_ROUNDS
        path = self.folder / name
        path.write_text(json.dumps(copy))
        return path

    def compared(self, before, now):
        return bench("--from", now, "--compare", before)

    def test_an_equal_file_is_equal(self):
        done = self.compared(self.file, self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0 slower, 0 faster", done.stdout)

    def test_a_way_that_failed_is_not_equal(self):
        before = self.file_with("before.json", lambda _: 1)
        lost = json.loads(pathlib.Path(before).read_text())
        lost["results"] = [each for each in lost["results"] if each["way"] != "tcp"]
        lost["skipped"].append({"case": "", "way": "tcp", "why": "gone\x1b[2J"})
        now = pathlib.Path(self.folder) / "lost.json"
        now.write_text(json.dumps(lost))
        done = self.compared(before, now)
        self.assertEqual(done.returncode, SLOWER, done.stdout + done.stderr)
        self.assertIn("lost    tcp", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_one_slower_case_is_found(self):
        def slower_launch(result):
            slow = (result["case"], result["way"]) == ("launch_synchronize", "tcp")
            return 1.2 if slow else 1.02

        before = self.file_with("before.json", lambda _: 1)
        now = self.file_with("now.json", slower_launch)
        done = self.compared(before, now)
        self.assertEqual(done.returncode, SLOWER, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"slower +launch_synchronize +tcp .* x 1\.20")
        self.assertIn("1 slower, 0 faster", done.stdout)
        done = self.compared(now, before)
        self.assertEqual(done.returncode, 0)
        self.assertIn("0 slower, 1 faster", done.stdout)

    def test_files_that_are_wrong(self):
        wrong = self.folder / "wrong.json"
        for text, word in (
            ("", "no JSON"),
            ("{}", "fargpu bench --json"),
            ('{"fargpu_bench": 99, "results": []}', "measure again"),
            ('{"fargpu_bench": 1, "results": [{"case": 3}]}', "'case'"),
            ('{"fargpu_bench": 1, "results": ' + "[" * 100000 + "]" * 100000 + "}", "no JSON"),
        ):
            with self.subTest(text[:40]):
                wrong.write_text(text)
                done = self.compared(wrong, self.file)
                self.assertEqual(done.returncode, BAD_FILE, done.stdout + done.stderr)
                self.assertIn(word, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


class Usage(unittest.TestCase):
    def test_list_needs_no_server(self):
        done = bench("--list", "--only", "memcpy.*/1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("host_to_device_memcpy_ce/registered/1GiB", done.stdout)
        self.assertNotIn("1MiB", done.stdout)
        self.assertNotIn("1GiB", bench("--list", "--quick").stdout)

    def test_wrong_usage(self):
        for arguments, word in (
            (("--only", "("), "--only"),
            (("--only", "no such case", "--sim"), "--list"),
            (("--sim", "--server", "localhost"), "exclude"),
            (("--json", "/nowhere/file", "--sim"), "--json"),
            (("--time", "soon", "--sim"), "--time"),
            (("--transport", "pigeon"), "--transport"),
            ((), "--server"),
            (("--server", "a,b"), "one server"),
        ):
            with self.subTest(arguments):
                done = bench(*arguments)
                self.assertIn(done.returncode, (USAGE, 71))
                self.assertIn(word, done.stderr)

    def test_a_transport_that_cannot_be_had(self):
        done = bench("--sim", "--quick", "--transport", "rdma", "--only", "call_sync")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rdma", done.stderr)

    def test_what_only_long_runs_have(self):
        done = bench(*"--sim --time 3s --transport shm --only registered/(4B|1MiB)$".split())
        self.assertEqual(done.returncode, 0, done.stderr)
        for case in ("host_to_device_memcpy_ce/registered/1MiB", "memcpy_ce/registered/4B"):
            self.assertIn(case, done.stdout)

    def test_cases_that_only_a_whole_run_has(self):
        done = bench(*("--sim --time 3s --transport tcp --only call_get_beside".split()))
        self.assertEqual(done.returncode, 0, done.stderr)
        for way in ("host_to_device", "device_to_host"):
            self.assertIn(f"call_get_beside_{way}", done.stdout)

    def test_another_end_for_bare_tcp(self):
        """It is at the address that was given: nobody there is a reason for each bare figure."""
        done = bench(
            *("--sim --quick --time 2s --transport tcp --only call_sync$".split()),
            *("--peer", "127.0.0.1:1"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not measured: bare-tcp", done.stdout)
        self.assertIn("call_sync", done.stdout)


class Losses(unittest.TestCase):
    def start(self, daemon):
        """A run that has begun to measure, and the worker of its session."""
        process = testing.subprocess.Popen(
            [testing.BUILD.fargpu, "bench", "--server", daemon.server, "--no-native", "--quick"]
            + ["--time", "6s", "--transport", "tcp", "--only", "^call_|^launch"],
            stdout=testing.subprocess.PIPE,
            stderr=testing.subprocess.PIPE,
            text=True,
            env=testing.clean_environment(),
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def measures():
            return any(
                pathlib.Path(f"/proc/{child}/comm").read_text() == "fargpu-measure\n"
                for child in children.read_text().split()
            )

        # fargpu itself asks the server, too, and a session more asks for the clocks of its GPUs.
        session = re.compile(
            r'session-begin .*kind=cuda .*client="\S+ fargpu-measure" worker=(\d+)'
        )
        testing.wait_until(measures, "a program that measures")
        found = testing.wait_until(lambda: session.search(daemon.log_text()), "its session")
        time.sleep(1)  # it is past its start
        return process, int(found[1])

    def test_a_worker_that_dies_costs_one_case(self):
        with testing.Daemon() as daemon:
            process, worker = self.start(daemon)
            os.kill(worker, signal.SIGKILL)
            out, err = process.communicate(timeout=testing.LIMIT)
        self.assertEqual(process.returncode, 0, out + err)
        (said,) = [line for line in out.splitlines() if line.startswith("not measured: tcp ")]
        self.assertIn("CUDA_ERROR_DEVICE_UNAVAILABLE", said)
        rows = {line.split()[0] for line in out.splitlines() if " us" in line}
        self.assertGreaterEqual(len({"call_sync", "launch_synchronize"} & rows), 1, out)

    def test_a_server_that_goes(self):
        with testing.Daemon() as daemon:
            process, _ = self.start(daemon)
            workers = daemon.workers()
            daemon.process.kill()
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            out, err = process.communicate(timeout=testing.LIMIT)
        self.assertEqual(process.returncode, UNREACHABLE, out + err)
        self.assertIn("CUDA_ERROR_", out + err)


class Peer(unittest.TestCase):
    def test_it_answers_until_it_is_stopped(self):
        peer = testing.subprocess.Popen(
            [testing.BUILD.fargpu, "bench", "--be-peer", "--listen", "127.0.0.1:0"],
            stdout=testing.subprocess.PIPE,
            stderr=testing.subprocess.PIPE,
            text=True,
            env=testing.clean_environment(),
        )
        self.addCleanup(peer.communicate)
        self.addCleanup(peer.kill)
        port = json.loads(peer.stdout.readline())["about"]["port"]
        with testing.socket.create_connection(("127.0.0.1", port), timeout=20) as rude:
            rude.sendall(b"x" * 24)
            self.assertEqual(rude.recv(1), b"")  # it hangs up
        done = bench(
            *("--sim --quick --time 3s --transport tcp --only call_sync$".split()),
            *("--peer", f"127.0.0.1:{port}"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("bare-tcp", done.stdout)
        self.assertIsNone(peer.poll())


if __name__ == "__main__":
    testing.main()
