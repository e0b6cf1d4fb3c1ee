"""Workers that are started ahead of their session: who gets them, that each serves one session, and
when there are none."""

import os
import pathlib
import signal
import tempfile
import unittest

import fargpu_testing as testing


class Program:
    """steady_work under `fargpu run`: its session lasts until end()."""

    def __init__(self, daemon, *flags):
        stays, self.ends = os.pipe()
        self.process = daemon.start(
            testing.BUILD.program("steady_work"), str(stays), flags=flags, pass_fds=(stays,)
        )
        os.close(stays)

    def end(self):
        os.close(self.ends)
        output, errors = self.process.communicate(timeout=testing.LIMIT)
        assert self.process.returncode == 0, output + errors


def ready(daemon, count):
    """The workers that wait for a session, once there are so many whose driver is open."""

    def look():
        found = daemon.workers_ahead()
        text = daemon.log_text()
        opened = [pid for pid in found if f"event=worker-ahead worker={pid} " in text]
        return opened if len(opened) == len(found) == count else None

    return testing.wait_until(look, f"{count} workers wait")


def session_worker(daemon):
    (worker,) = testing.wait_until(daemon.workers, "a session has begun")
    return worker


def begun_with(daemon):
    """The worker of the last session that has begun; none: 0. It may not have read that yet."""
    *_, last = daemon.log_text().split("event=session-begin")
    return int(last.split("worker=")[1].split()[0]) if "kind=cuda" in last else 0


@testing.not_with_an_older_release("its workers are not started ahead")
class WorkersAhead(unittest.TestCase):
    def test_a_session_takes_one_and_it_ends_with_it(self):
        with testing.Daemon("--workers-ahead", "1") as daemon:
            taken = set()
            for _ in range(3):
                (waiting,) = ready(daemon, 1)
                self.assertNotIn(waiting, taken)
                program = Program(daemon)
                self.assertEqual(session_worker(daemon), waiting)
                # The next one is another process, and is there while the session lasts.
                (following,) = ready(daemon, 1)
                self.assertNotEqual(following, waiting)
                program.end()
                testing.wait_until(
                    lambda pid=waiting: not testing.is_running(pid), "it has ended with its session"
                )
                taken.add(waiting)
            self.assertEqual(daemon.log_text().count(" ahead=yes"), 3)
            self.assertNotIn(" ahead=no", daemon.log_text())

    def test_they_are_no_sessions(self):
        with testing.Daemon("--workers-ahead", "2", gpus=2) as daemon:
            ready(daemon, 4)
            listed = testing.run([testing.BUILD.fargpu, "ps", "--server", daemon.server])
            self.assertIn("0 jobs\n0 sessions", listed.stdout, listed.stderr)

    def test_they_sleep(self):
        def switches(pid):
            tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
            lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
            return [line for line in lines if "ctxt_switches" in line]

        with testing.Daemon("--workers-ahead", "2") as daemon:
            waiting = set(ready(daemon, 2))
            seen = {}

            def quiet(pid):
                before, seen[pid] = seen.get(pid), switches(pid)
                return before == seen[pid]

            testing.wait_until(lambda: all(map(quiet, waiting)), "they sleep")
            program = Program(daemon)
            (left,) = waiting - {session_worker(daemon)}
            ready(daemon, 2)
            program.end()
            self.assertEqual(switches(left), seen[left])

    def test_many_sessions_at_once(self):
        with testing.Daemon("--workers-ahead", "1") as daemon:
            ready(daemon, 1)
            programs = [Program(daemon) for _ in range(20)]
            testing.wait_until(lambda: len(daemon.workers()) == 20, "20 sessions", testing.LIMIT)
            for program in programs:
                program.end()
            testing.wait_until(lambda: not daemon.workers(), "their workers have ended")
            begun = daemon.log_text().count("event=session-begin")
            self.assertEqual(begun, 20)
            self.assertIn(" ahead=yes", daemon.log_text())
            ready(daemon, 1)

    def test_another_grant_gets_a_fresh_worker(self):
        with testing.Daemon("--workers-ahead", "1", gpus=2) as daemon:
            waiting = ready(daemon, 2)
            program = Program(daemon, "--gpus", "2")
            self.assertNotIn(session_worker(daemon), waiting)
            program.end()
            self.assertEqual(sorted(ready(daemon, 2)), sorted(waiting))
            # Each of the two has one of the GPUs.
            for gpu in ("0", "1"):
                done = daemon.run(testing.BUILD.program("vector_add"), flags=("--device", gpu))
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(daemon.log_text().count(" ahead=yes"), 2)

    def test_one_that_is_killed_is_replaced(self):
        with testing.Daemon("--workers-ahead", "1") as daemon:
            (waiting,) = ready(daemon, 1)
            os.kill(waiting, signal.SIGKILL)
            done = daemon.run(testing.BUILD.program("vector_add"))
            self.assertEqual(done.returncode, 0, done.stderr)
            testing.wait_until(lambda: not daemon.workers(), "its session has ended")
            (other,) = ready(daemon, 1)
            self.assertNotEqual(other, waiting)
            program = Program(daemon)
            self.assertEqual(session_worker(daemon), other)
            program.end()

    def test_they_end_with_the_daemon(self):
        for end in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(end), testing.Daemon(gpus=2) as daemon:
                waiting = ready(daemon, 4)
                daemon.process.send_signal(end)
                daemon.process.wait(testing.LIMIT)
                testing.wait_until(
                    lambda pids=waiting: not any(map(testing.is_running, pids)), "they have ended"
                )

    def test_none(self):
        with testing.Daemon("--workers-ahead", "0") as daemon:
            program = Program(daemon)
            session_worker(daemon)
            program.end()
            self.assertEqual(daemon.workers_ahead(), [])
            self.assertIn(" ahead=no", daemon.log_text())

    def test_limits(self):
        """A session has what its daemon's configuration says."""
        flags = ("--workers-ahead", "1", "--worker-open-files", "300", "--worker-oom-score", "700")
        with testing.Daemon(*flags) as daemon:
            (waiting,) = ready(daemon, 1)
            limits = pathlib.Path(f"/proc/{waiting}/limits").read_text().splitlines()
            (files,) = (line.split()[3] for line in limits if line.startswith("Max open files"))
            self.assertEqual(files, "300")
            score = pathlib.Path(f"/proc/{waiting}/oom_score_adj").read_text().strip()
            self.assertEqual(score, "700")

    def test_what_kernels_print(self):
        """It is what a session with a fresh worker prints, whole and in order."""
        texts = {"device_printf": "thread 1 says hello 0.50\n", "printf_order": "device "}
        with testing.Daemon("--workers-ahead", "0") as fresh, testing.Daemon() as daemon:
            for name, printed in texts.items():
                program = testing.BUILD.program(name)
                expected = fresh.run(program)
                self.assertIn(printed, expected.stdout, expected.stderr)
                # The second one has a worker that was started beside a session.
                for _ in range(2):
                    taken = ready(daemon, 2)
                    with self.subTest(name):
                        done = daemon.run(program)
                        self.assertEqual(done.returncode, expected.returncode, done.stderr)
                        self.assertEqual(done.stdout, expected.stdout)
                        self.assertIn(begun_with(daemon), taken)

    def test_a_driver_that_fails_when_its_session_has_come(self):
        """The client is told the reason, as it is by a fresh worker."""
        with tempfile.TemporaryDirectory() as folder:
            hold, fail = pathlib.Path(folder, "hold"), pathlib.Path(folder, "fail")

            def start(count):
                return testing.Daemon(
                    "--workers-ahead",
                    count,
                    environment={"FARGPU_TEST_DRIVER_FOLDER": folder},
                    driver=testing.BUILD.folder / "tests" / "programs" / "slow_driver.so",
                )

            def opening(daemon):
                called = [
                    pid for pid in daemon.workers_ahead() if (hold.parent / str(pid)).exists()
                ]
                return called if len(called) == 1 else None

            with start(0) as fresh, start(1) as daemon:
                (first,) = ready(daemon, 1)
                hold.touch()
                program = Program(daemon)
                self.assertEqual(session_worker(daemon), first)
                (second,) = testing.wait_until(lambda: opening(daemon), "the next one opens")
                refused = daemon.start(testing.BUILD.program("vector_add"))
                testing.wait_until(
                    lambda: begun_with(daemon) == second, "it has been given the session"
                )
                fail.touch()
                hold.unlink()
                _, told = refused.communicate(timeout=testing.LIMIT)
                program.end()
                expected = fresh.run(testing.BUILD.program("vector_add"))
                self.assertIn("CUDA_ERROR_SYSTEM_NOT_READY", expected.stderr)
                # A later call may find the GPU out of service.
                first = [text.splitlines()[0] for text in (told, expected.stderr)]
                self.assertEqual((refused.returncode, first[0]), (expected.returncode, first[1]))


if __name__ == "__main__":
    testing.main()
