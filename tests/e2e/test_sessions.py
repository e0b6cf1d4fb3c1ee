"""Many sessions: one after another, side by side; what a session had is free when it has ended;
limits on GPUs and memory."""

import concurrent.futures
import sys
import unittest

import fargpu_testing as testing

IN_A_ROW = 200
AT_ONCE = 16


def session_program():
    """A short program for many sessions: the runtime's, or without nvcc a conformance program."""
    path = testing.BUILD.programs / "vector_add"
    return (
        path
        if path.exists()
        else testing.BUILD.folder / "tests" / "conformance" / "conformance_memset"
    )


class Sessions(unittest.TestCase):
    def no_session_left(self, daemon):
        """A worker ends a moment after its client, later under sanitizers."""

        def none_listed():
            listing = testing.run([testing.BUILD.fargpu, "ps", "--server", daemon.server])
            return listing.stdout.splitlines()[-1] == "0 sessions"

        testing.wait_until(none_listed, "fargpu ps shows no session")

    def test_many_in_a_row(self):
        with testing.Daemon() as daemon:
            for i in range(IN_A_ROW):
                done = daemon.run(session_program(), flags=("--no-check",))
                self.assertEqual(done.returncode, 0, f"session {i}: {done.stderr}")
            self.no_session_left(daemon)

    def test_many_at_once(self):
        with testing.Daemon(gpus=2) as daemon:
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                runs = [pool.submit(daemon.run, session_program()) for _ in range(AT_ONCE)]
                for one in runs:
                    done = one.result()
                    self.assertEqual(done.returncode, 0, done.stderr)
            self.no_session_left(daemon)

    def test_sessions_are_listed_while_they_live(self):
        program = testing.BUILD.program("ending")
        with testing.Daemon(gpus=2) as daemon:
            first = daemon.start(program, "handle", flags=("--memory", "256M"))
            second = daemon.start(program, "handle")
            try:
                self.assertEqual(first.stdout.readline(), "ready\n")
                self.assertEqual(second.stdout.readline(), "ready\n")
                listing = testing.run(
                    [testing.BUILD.fargpu, "ps", "--server", daemon.server]
                ).stdout
                self.assertTrue(listing.endswith("2 sessions\n"), listing)
                self.assertIn("ending", listing)
                self.assertIn("256.0 MiB", listing)
                # Least loaded: the two sessions are on different GPUs.
                devices = testing.run(
                    [testing.BUILD.fargpu, "devices", "--server", daemon.server]
                ).stdout
                self.assertEqual(
                    [line.split()[-1] for line in devices.splitlines()[1:]], ["1", "1"], devices
                )
            finally:
                for process in (first, second):
                    process.terminate()
                    self.assertEqual(process.wait(testing.LIMIT), 33)
                    process.stdout.close()
                    process.stderr.close()
            self.no_session_left(daemon)

    def test_gpus_and_memory_as_asked(self):
        program = testing.BUILD.program("memory_report")
        with testing.Daemon(gpus=3) as daemon:
            done = daemon.run(program, "100", "1000", flags=("--gpus", "2", "--memory", "256M"))
            self.assertEqual(
                done.stdout.splitlines(),
                [
                    "devices 2",
                    "total 256 MiB, property 256 MiB",
                    "100 MiB: cudaSuccess",
                    "1000 MiB: cudaErrorMemoryAllocation",
                ],
                done.stderr,
            )

    def test_quota_is_exact_and_ends_with_the_session(self):
        program = testing.BUILD.program("memory_report")
        with testing.Daemon() as daemon:
            for _ in range(3):  # nothing of an earlier session counts
                done = daemon.run(program, "200", "100", "40", flags=("--memory", "256M"))
                self.assertEqual(
                    done.stdout.splitlines()[2:],
                    [
                        "200 MiB: cudaSuccess",
                        "100 MiB: cudaErrorMemoryAllocation",
                        "40 MiB: cudaSuccess",
                    ],
                    done.stderr,
                )

    @testing.not_with_an_older_release("it does not say why there is no memory")
    def test_the_limit_is_told_from_a_full_gpu(self):
        """Once, with what it is; a GPU without room says nothing more than natively."""
        program = testing.BUILD.program("memory_report")
        with testing.Daemon(environment={"FARGPU_SIM_MEMORY": "512M"}) as daemon:
            done = daemon.run(program, "200", "100", "100", flags=("--memory", "256M"))
            (line,) = done.stderr.splitlines()
            for word in ("256.0 MiB of each GPU", "200.0 MiB are taken", "--memory"):
                self.assertIn(word, line)
            self.assertEqual(daemon.run(program, "1000").stderr, "")

    @testing.not_with_an_older_release("its limit does not hold there")
    def test_memory_that_graphs_leave_counts_until_it_is_freed(self):
        program = testing.BUILD.program("left_memory")
        with testing.Daemon() as daemon:
            for how, made in (
                ("left", 4),
                *((how, 12) for how in ("node", "before", "after", "other")),
            ):
                with self.subTest(how):
                    done = daemon.run(program, how, flags=("--memory", "256M"))
                    self.assertEqual(done.stdout.split(), [str(made)], done.stderr)

    @testing.not_with_an_older_release("its limit does not hold there")
    def test_all_memory_of_the_device_counts(self):
        program = testing.BUILD.program("limited_memory")
        with testing.Daemon() as daemon:
            for what, taken in (
                *((what, 4) for what in ("variables", "library", "heap", "printf")),
                ("stack", 1),
                *((what, 4) for what in ("kept", "waiting", "destroyed", "graphs", "local")),
            ):
                with self.subTest(what):
                    done = daemon.run(program, what, flags=("--memory", "300M"))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(done.stdout.split(), [str(taken)], done.stderr)

    @testing.not_with_an_older_release("it has no such limit")
    def test_host_memory_of_a_session(self):
        """What does not fit is an error of the program, and not the end of its session."""
        with testing.Daemon("--host-memory-per-session", "32M") as daemon:
            done = daemon.run(testing.BUILD.program("copies"))
            self.assertEqual(done.stdout.split(), ["copies:", "right"], done.stderr)
            done = daemon.run(testing.BUILD.program("large_copy"))
            self.assertIn("cudaErrorMemoryAllocation", done.stderr)
            log = daemon.log_text()
            self.assertNotIn("event=session-broken", log)
            # The operator is told once for each session.
            refused = [line for line in log.splitlines() if "event=host-memory-refused" in line]
            self.assertEqual(len(refused), 1, log)
            self.assertIn(f"limit={32 << 20} why=host-memory-per-session", refused[0])

    @testing.not_with_an_older_release("it has no such limit")
    def test_ptx_beyond_the_limit(self):
        program = (
            "import ctypes\n"
            "cuda = ctypes.CDLL('libcuda.so.1')\n"
            "context, module, link = (ctypes.c_void_p() for _ in range(3))\n"
            "assert cuda.cuInit(0) == 0\n"
            "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
            "assert cuda.cuCtxSetCurrent(context) == 0\n"
            "assert cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(link)) == 0\n"
            "for bytes in (60000, 70000):\n"
            "    head = b'.version 7.0\\n.target sm_75\\n.address_size 64\\n'\n"
            "    ptx = (head + b'.visible .entry k() { ret; }').ljust(bytes) + b'\\0'\n"
            "    loaded = cuda.cuModuleLoadData(ctypes.byref(module), ptx)\n"
            "    added = cuda.cuLinkAddData_v2(link, 1, ptx, len(ptx), b'k', 0, None, None)\n"
            "    print(loaded, added)\n"
        )
        with testing.Daemon("--max-ptx", "64K") as daemon:
            done = daemon.run(sys.executable, "-c", program)
            self.assertEqual(done.stdout.splitlines(), ["0 0", "2 2"], done.stderr)
            self.assertIn("the server compiles 64.0 KiB at most (max-ptx)", done.stderr)
            self.assertIn("limit=65536 why=max-ptx", daemon.log_text())

    def test_wanted_devices(self):
        program = testing.BUILD.program("memory_report")
        with testing.Daemon(gpus=3) as daemon:
            listing = testing.run(
                [testing.BUILD.fargpu, "devices", "--server", daemon.server]
            ).stdout
            uuids = [line.split()[1] for line in listing.splitlines()[1:]]
            self.assertEqual(len(uuids), 3, listing)
            done = daemon.run(program, flags=("--device", uuids[2], "--gpus", "1"))
            self.assertEqual(done.returncode, 0, done.stderr)
            done = daemon.run(program, flags=("--device", "1", "--device", "2", "--gpus", "2"))
            self.assertEqual(done.stdout.splitlines()[0], "devices 2", done.stderr)


if __name__ == "__main__":
    testing.main()
