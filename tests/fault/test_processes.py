"""Processes that die: worker, daemon, client. The others notice at once, say so once, and the
daemon serves the next session."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import fargpu_testing as testing

LOST = "CUDA_ERROR_DEVICE_UNAVAILABLE"


def program():
    return testing.BUILD.folder / "tests" / "fault" / "fault_program"


class Session:
    """fault_program behind `fargpu run`, ready for commands."""

    def __init__(self, daemon, *flags, mode="work"):
        self.process = daemon.start(
            program(),
            mode,
            flags=flags,
            stdin=subprocess.PIPE,
            env=testing.clean_environment(**testing.without_signal_handlers()),
        )
        line = self.process.stdout.readline()
        if line != "ready\n":
            self.process.kill()
            raise AssertionError(line + self.process.communicate()[1])

    def begin(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().strip()

    def ask(self, command):
        self.begin(command)
        return self.answer()

    def end(self):
        """Closes stdin, waits; (exit code, stderr)."""
        _, errors = self.process.communicate(timeout=testing.LIMIT)  # closes the pipes
        return self.process.returncode, errors


class Processes(unittest.TestCase):
    def serves(self, daemon):
        session = Session(daemon)
        self.assertEqual(session.ask("copy"), "copy: CUDA_SUCCESS")
        self.assertEqual(session.end()[0], 0)

    def is_lost(self, session, first="copy"):
        """Every further call fails, fast; the end does not hang; one line on stderr says why."""
        for command in (first, "set", "sync", "alloc", "copy", "free"):
            self.assertEqual(session.ask(command), f"{command}: {LOST}")
        code, errors = session.end()
        self.assertEqual(code, 0)
        lines = [
            line
            for line in errors.splitlines()
            if "lost" in line.lower() or "server" in line.lower()
        ]
        self.assertEqual(len(lines), 1, errors)

    def test_worker_killed(self):
        with testing.Daemon() as daemon:
            session, other = Session(daemon), Session(daemon)
            workers = daemon.workers()
            self.assertEqual(len(workers), 2)
            os.kill(min(workers), signal.SIGKILL)
            testing.wait_until(lambda: len(daemon.workers()) == 1, "the worker is gone")
            answers = [s.ask("copy") for s in (session, other)]
            self.assertEqual(sorted(answers), [f"copy: {LOST}", "copy: CUDA_SUCCESS"])
            lost, living = (session, other) if LOST in answers[0] else (other, session)
            self.is_lost(lost)
            self.assertEqual(living.ask("alloc"), "alloc: CUDA_SUCCESS")
            self.assertEqual(living.end()[0], 0)
            self.serves(daemon)
            self.assertIn("worker", daemon.log_text())

    def test_worker_killed_while_copies_wait(self):
        """Calls that wait for copies, whose stream will never come to them, fail with the session;
        so do later ones, and exit is not held up."""
        for transport in ("shm", "tcp"):
            for waiting in ("unpin", "unregister", "wait", "free"):
                with self.subTest(f"{transport} {waiting}"), testing.Daemon() as daemon:
                    session = Session(daemon, "--transport", transport, mode="copies")
                    self.assertEqual(session.ask("fork"), "fork: CUDA_SUCCESS")
                    session.begin(waiting)
                    time.sleep(0.3)
                    (worker,) = daemon.workers()
                    os.kill(worker, signal.SIGKILL)
                    begin = time.monotonic()
                    self.assertEqual(session.answer(), f"{waiting}: {LOST}")
                    for later in ("copy more", "unpin", "unregister", "wait", "free"):
                        if later != waiting:
                            self.assertEqual(session.ask(later), f"{later}: {LOST}")
                    self.assertEqual(session.end()[0], 0)
                    self.assertLess(time.monotonic() - begin, 2)
                    self.serves(daemon)

    def test_exit_while_copies_wait(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport), testing.Daemon() as daemon:
                session = Session(daemon, "--transport", transport, mode="copies")
                (worker,) = daemon.workers()
                begin = time.monotonic()
                self.assertEqual(session.end()[0], 0)
                self.assertLess(time.monotonic() - begin, 2)
                testing.wait_until(
                    lambda w=worker: not testing.is_running(w), "the worker ended", 20
                )

    def test_daemon_killed(self):
        daemon = testing.Daemon().__enter__()
        try:
            session = Session(daemon)
            workers = daemon.workers()
            daemon.process.kill()
            daemon.process.wait()
            testing.wait_until(
                lambda: not any(testing.is_running(pid) for pid in workers),
                "no worker outlives its daemon",
            )
            self.is_lost(session)
            done = daemon.run(program())
            self.assertEqual(done.returncode, 69, done.stderr)
        finally:
            daemon.__exit__(None)

    def no_process_is_left(self, daemon, at_least):
        """kill -9 of the daemon, whose workers must be gone 2 s later."""
        left = daemon.children("fargpu")
        self.assertGreaterEqual(len(left), at_least)
        daemon.process.kill()
        daemon.process.wait()
        testing.wait_until(
            lambda: not any(map(testing.is_running, left)), "no worker outlives its daemon", 2
        )

    def test_no_worker_outlives_a_killed_daemon(self):
        """Nor one that waits for its session, sits in a driver call, or is stopped."""
        for mode in ("work", "crowded", "runaway", "stopped"):
            for transport in ("shm", "tcp"):
                with self.subTest(f"{mode} {transport}"):
                    daemon = testing.Daemon(environment={"FARGPU_SIM_QUEUE": "100"}).__enter__()
                    try:
                        session = Session(
                            daemon,
                            "--transport",
                            transport,
                            mode="work" if mode == "stopped" else mode,
                        )
                        (worker,) = daemon.workers()
                        time.sleep(1 if mode == "crowded" else 0)  # now the driver's queue is full
                        if mode == "stopped":
                            os.kill(worker, signal.SIGSTOP)
                        self.no_process_is_left(daemon, 2)
                        session.process.kill()
                        session.process.communicate()
                    finally:
                        daemon.__exit__(None)

    def test_no_worker_that_opens_its_driver_outlives_a_killed_daemon(self):
        """As while a GPU's firmware is loaded: in cuInit, ahead of any session."""
        driver = testing.BUILD.folder / "tests" / "programs" / "slow_driver.so"
        with tempfile.TemporaryDirectory() as folder:
            environment = {"FARGPU_TEST_DRIVER_FOLDER": folder}
            daemon = testing.Daemon(environment=environment, driver=driver).__enter__()
            try:
                pathlib.Path(folder, "hold").touch()
                for pid in daemon.workers_ahead():  # those that were faster
                    os.kill(pid, signal.SIGKILL)

                def opening():
                    names = map(str, daemon.workers_ahead())
                    return any(pathlib.Path(folder, name).exists() for name in names)

                testing.wait_until(opening, "a worker opens its driver")
                self.no_process_is_left(daemon, 1)
            finally:
                daemon.__exit__(None)

    def test_killed_daemon_leaves_nothing_behind(self):
        """The next daemon removes the folder of one that was killed, and never that of one that
        lives."""
        with tempfile.TemporaryDirectory() as folder:

            def folders():
                return sorted(entry.name for entry in pathlib.Path(folder).iterdir())

            killed = testing.Daemon("--runtime-dir", folder).__enter__()
            try:
                left = folders()
                self.assertEqual(len(left), 1)
                with testing.Daemon("--runtime-dir", folder) as living:
                    self.assertIn(left[0], folders())
                    killed.process.kill()
                    killed.process.wait()
                    with testing.Daemon("--runtime-dir", folder) as third:
                        self.assertNotIn(left[0], folders())
                        self.assertEqual(len(folders()), 2)
                        self.serves(third)
                    self.serves(living)
            finally:
                killed.__exit__(None)
            self.assertEqual(folders(), [])

    def test_limits_of_a_worker(self):
        def limits(pid):
            lines = pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
            return {line[:26].strip(): line[26:].split()[:2] for line in lines[1:]}

        def score(pid):
            return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())

        with testing.Daemon() as daemon:
            session = Session(daemon)
            (worker,) = daemon.workers()
            self.assertEqual(limits(worker)["Max core file size"], ["1", "1"])
            most = int(limits(daemon.process.pid)["Max open files"][1])
            self.assertEqual(limits(worker)["Max open files"], [str(min(4096, most))] * 2)
            self.assertEqual(score(worker), max(500, score(daemon.process.pid)))
            self.assertEqual(session.end()[0], 0)
        with testing.Daemon(
            "--worker-open-files", "300", "--worker-oom-score", "700", "--worker-core-dumps"
        ) as daemon:
            session = Session(daemon)
            (worker,) = daemon.workers()
            self.assertEqual(
                limits(worker)["Max core file size"],
                limits(daemon.process.pid)["Max core file size"],
            )
            self.assertEqual(limits(worker)["Max open files"], ["300", "300"])
            self.assertEqual(score(worker), max(700, score(daemon.process.pid)))
            self.assertEqual(session.end()[0], 0)

    def test_a_worker_that_crashes_leaves_no_core(self):
        with testing.Daemon() as daemon:
            session = Session(daemon)
            (worker,) = daemon.workers()
            os.kill(worker, signal.SIGABRT)
            testing.wait_until(lambda: not daemon.workers(), "the worker is gone")
            self.is_lost(session)
            self.assertIn("signal 6", daemon.log_text())
            self.assertNotIn("core dump", daemon.log_text())
            self.serves(daemon)

    def test_client_killed(self):
        with testing.Daemon() as daemon:
            session = Session(daemon, "--memory", "64M")
            session.process.kill()
            session.process.communicate()
            testing.wait_until(lambda: not daemon.workers(), "the worker of a dead client ended")
            # The daemon notes the end of a worker a moment after it.
            listing = [testing.BUILD.fargpu, "devices", "--server", daemon.server]
            testing.wait_until(
                lambda: testing.run(listing).stdout.splitlines()[1].split()[-1] == "0",
                "no session is listed",
            )
            self.serves(daemon)

    def test_kernel_that_never_ends(self):
        """It ends with its session, however that ends: no worker, no session, no core that stays
        busy."""

        def kill(session):
            session.process.kill()
            session.process.communicate()

        def end_of_program(session):
            self.assertEqual(session.end()[0], 0)

        def kill_while_a_thread_waits(session):
            session.process.stdin.write("sync\n")
            session.process.stdin.flush()
            kill(session)

        with testing.Daemon("--drain", "1s") as daemon:
            for way in (kill, end_of_program, kill_while_a_thread_waits):
                with self.subTest(way.__name__):
                    session = Session(daemon, mode="runaway")
                    (worker,) = daemon.workers()
                    way(session)
                    testing.wait_until(
                        lambda worker=worker: not testing.is_running(worker),
                        "the worker ended with its kernel",
                        5,
                    )
                    # The daemon learns of the end a moment after the process is gone.
                    listing = [testing.BUILD.fargpu, "ps", "--server", daemon.server]
                    testing.wait_until(
                        lambda command=listing: testing.run(command).stdout.endswith(
                            "0 sessions\n"
                        ),
                        "the session ended",
                        5,
                    )
            session = Session(daemon, mode="runaway")
            (worker,) = daemon.workers()
            daemon.process.terminate()
            daemon.process.wait(30)
            self.assertFalse(testing.is_running(worker))
            self.is_lost(session)

    def test_driver_call_that_does_not_return(self):
        """So many launches behind a kernel that never ends that the driver holds the executor: the
        worker ends all the same."""
        with testing.Daemon(environment={"FARGPU_SIM_QUEUE": "100"}) as daemon:
            session = Session(daemon, mode="crowded")
            (worker,) = daemon.workers()
            session.process.kill()
            session.process.communicate()
            testing.wait_until(lambda: not testing.is_running(worker), "the worker ended", 20)
            self.assertIn("a driver call did not return", daemon.log_text())
            self.serves(daemon)

    def test_exit_does_not_wait(self):
        """A process that exits is gone within 2 s, whatever its threads and the worker do."""

        def crowd(session, worker):
            time.sleep(1)

        def stop_worker(session, worker):
            os.kill(worker, signal.SIGSTOP)
            time.sleep(2)  # now the connection is full

        for mode, act, queue in (
            ("launching", crowd, "1021"),
            ("crowded", crowd, "100"),
            ("work", stop_worker, "1021"),
            ("sending", stop_worker, "1021"),
        ):
            environment = {"FARGPU_SIM_QUEUE": queue}
            with self.subTest(mode), testing.Daemon(environment=environment) as daemon:
                session = Session(daemon, mode=mode)
                (worker,) = daemon.workers()
                act(session, worker)
                begin = time.monotonic()
                self.assertEqual(session.end()[0], 0)
                self.assertLess(time.monotonic() - begin, 2)
                if act == stop_worker:
                    os.kill(worker, signal.SIGCONT)
                testing.wait_until(
                    lambda w=worker: not testing.is_running(w), "the worker ended", 20
                )

    def test_client_stopped_while_others_work(self):
        with testing.Daemon() as daemon:
            session = Session(daemon)
            session.process.send_signal(signal.SIGSTOP)
            self.serves(daemon)
            session.process.send_signal(signal.SIGCONT)
            self.assertEqual(session.ask("copy"), "copy: CUDA_SUCCESS")
            self.assertEqual(session.end()[0], 0)

    def test_daemon_drains(self):
        with testing.Daemon("--drain", "60s") as daemon:
            session = Session(daemon)
            daemon.process.terminate()
            testing.wait_until(
                lambda: daemon.run(program(), "init").returncode == 75, "no new job is taken"
            )
            done = daemon.run(program(), "init", flags=("--no-check",))
            self.assertEqual(done.returncode, 4, done.stdout)  # nor a new session
            self.assertEqual(session.ask("copy"), "copy: CUDA_SUCCESS")  # the old one goes on
            self.assertEqual(session.end()[0], 0)
            self.assertEqual(daemon.process.wait(30), 0)

    def test_drain_has_a_limit(self):
        with testing.Daemon("--drain", "1s") as daemon:
            session = Session(daemon)
            daemon.process.terminate()
            daemon.process.wait(30)
            self.is_lost(session)

    def test_a_worker_that_cannot_be_killed(self):
        """The daemon ends without it: ten seconds after the drain, or at a second signal."""
        group = pathlib.Path(f"/sys/fs/cgroup/freezer/fargpu-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            self.skipTest("needs the right to freeze processes (cgroup version 1)")
        self.addCleanup(group.rmdir)
        for signals, seconds in ((1, 14), (2, 4)):
            with self.subTest(signals=signals), testing.Daemon("--drain", "1s") as daemon:
                session = Session(daemon)
                (worker,) = daemon.workers()
                (group / "cgroup.procs").write_text(str(worker))
                (group / "freezer.state").write_text("FROZEN")
                try:
                    begin = time.monotonic()
                    for _ in range(signals):
                        daemon.process.terminate()
                        testing.wait_until(lambda: "draining" in daemon.log_text(), "it drains")
                    self.assertEqual(daemon.process.wait(30), 0)
                    self.assertLess(time.monotonic() - begin, seconds)
                    self.assertIn("event=workers-left sessions=1", daemon.log_text())
                finally:
                    (group / "freezer.state").write_text("THAWED")
                self.is_lost(session)

    def test_drain_lets_submitted_work_end(self):
        """A host function that lasts longer than the drain, and what waits behind it, end; so does
        the program. The calls of a thread that would go on submitting wait meanwhile."""
        for mode, transport in (("function", "shm"), ("busy", "tcp")):
            with self.subTest(mode), testing.Daemon("--drain", "1s") as daemon:
                session = Session(daemon, "--transport", transport, mode=mode)
                session.begin("wait")
                begin = time.monotonic()
                daemon.process.terminate()
                self.assertEqual(session.answer(), "wait: CUDA_SUCCESS")
                self.assertGreater(time.monotonic() - begin, 2)
                for command in ("brought", "copy"):
                    self.assertEqual(session.ask(command), f"{command}: CUDA_SUCCESS")
                self.assertEqual(session.end()[0], 0)
                self.assertEqual(daemon.process.wait(30), 0)

    def test_program_dies_in_the_middle_of_a_session(self):
        with testing.Daemon() as daemon:
            for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM):
                session = Session(daemon)
                session.process.send_signal(number)
                self.assertEqual(session.end()[0], -number)
            testing.wait_until(lambda: not daemon.workers(), "all workers ended")
            self.serves(daemon)


if __name__ == "__main__":
    testing.main()
