"""Jobs: the processes of one program share its GPUs and its memory limit; who holds a job, and when
it ends."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

import fargpu_testing as testing

HOLDER = "fargpu-job"  # the name of the process beside a program


def fargpu(*arguments, **environment):
    return testing.run(
        [testing.BUILD.fargpu, *arguments], env=testing.clean_environment(**environment)
    )


def listing(daemon):
    done = fargpu("ps", "--server", daemon.server)
    assert done.returncode == 0, done.stderr
    return done.stdout


def count(daemon):
    """How many jobs and sessions the server has."""
    jobs, sessions = listing(daemon).splitlines()[-2:]
    return int(jobs.removesuffix(" jobs")), int(sessions.removesuffix(" sessions"))


def wait_for(daemon, jobs, sessions, seconds=30):
    testing.wait_until(
        lambda: count(daemon) == (jobs, sessions), f"{jobs} jobs, {sessions} sessions", seconds
    )


def direct_environment(daemon, **more):
    """For a program that is started without `fargpu run`."""
    return testing.clean_environment(
        FARGPU_SERVER=daemon.server,
        LD_LIBRARY_PATH=testing.BUILD.client_libraries,
        **more,
    )


def may_unshare():
    """Not every container's root may."""
    try:
        return testing.run(["unshare", "--pid", "--fork", "true"]).returncode == 0
    except OSError:
        return False


def id_text(number):
    """As ps and logs print it: docs/adr/0032."""
    return f"{number >> 20:011x}-{number & 0xFFFFF:x}"


class Running:
    """A program that says one line, runs until its stdin ends, and is ended here."""

    def __init__(self, process):
        self.process = process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def line(self):
        return self.process.stdout.readline().strip()

    def finish(self):
        self.process.stdin.close()
        self.process.stdin = None
        return self.process.wait(testing.LIMIT)


def holder_of(program):
    """The process that holds the job of a program. The two have one command line, that of `fargpu
    run`, until the program takes it over; the holder's client name is the program's."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == HOLDER:
                links = [os.readlink(fd) for fd in (entry / "fd").iterdir()]
                information = "".join(
                    (entry / "fdinfo" / fd.name).read_text() for fd in (entry / "fd").iterdir()
                )
                if re.search(rf"^Pid:\s+{program}$", information, re.MULTILINE):
                    found.append((int(entry.name), links))
        except OSError:
            continue
    return found


class Jobs(unittest.TestCase):
    @staticmethod
    def ranks():
        return testing.BUILD.program("ranks")

    def hold(self, daemon, mebibytes=0, flags=(), **options):
        return Running(
            daemon.start(
                self.ranks(), "hold", mebibytes, flags=flags, stdin=subprocess.PIPE, **options
            )
        )

    def member(self, ticket, daemon, mebibytes=0, **more):
        """A further process of a job."""
        return Running(
            subprocess.Popen(
                [str(self.ranks()), "hold", str(mebibytes)],
                env=direct_environment(daemon, FARGPU_JOB=ticket, **more),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    @staticmethod
    def ticket_of(running):
        text = pathlib.Path(f"/proc/{running.process.pid}/environ").read_bytes()
        return next(
            part.decode().split("=", 1)[1]
            for part in text.split(b"\0")
            if part.startswith(b"FARGPU_JOB=")
        )

    def check_ranks(self, done, ranks=2):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = sorted(line.split() for line in done.stdout.splitlines())
        self.assertEqual(len(lines), ranks, done.stdout)
        seen = lines[0][3 : 3 + ranks]
        self.assertEqual(len(set(seen)), ranks)
        for rank, line in enumerate(lines):
            self.assertEqual(
                line, ["rank", str(rank), "sees", *seen, "uses", seen[rank]], done.stdout
            )
        return seen

    def test_rank_i_has_device_i_and_all_see_both(self):
        with testing.Daemon(gpus=4) as daemon:
            # Others are there: each placement by itself would come out differently.
            with self.hold(daemon, flags=("--device", "1")) as other:
                self.assertIn("CUDA_SUCCESS", other.line())
                for mode in (("fork",), ("spawn",), ("open", "spawn")):
                    with self.subTest(mode):
                        done = daemon.run(self.ranks(), *mode, 2, flags=("--gpus", "2"))
                        self.check_ranks(done)
                done = daemon.run(
                    self.ranks(), "spawn", 2, flags=("--device", "3", "--device", "0")
                )
                seen = self.check_ranks(done)
                self.assertEqual([uuid[-2:] for uuid in seen], ["03", "00"])
                wait_for(daemon, 1, 1)

    def test_simulated_and_unchecked_runs_are_jobs_too(self):
        done = fargpu("run", "--sim", "--sim-gpus", "2", "--", self.ranks(), "spawn", 2)
        self.check_ranks(done)
        with testing.Daemon(gpus=3) as daemon:
            done = daemon.run(self.ranks(), "spawn", 2, flags=("--no-check", "--gpus", "2"))
            self.check_ranks(done)
            self.assertEqual(len(re.findall("event=job-begin", daemon.log_text())), 1)

    def test_without_the_cli_children_of_one_thread_join_the_job(self):
        with testing.Daemon("--job-grace", "60s", gpus=3) as daemon:
            done = testing.run(
                [self.ranks(), "open", "spawn", 2], env=direct_environment(daemon, FARGPU_GPUS=2)
            )
            self.check_ranks(done)
            self.assertEqual(len(re.findall("event=job-begin", daemon.log_text())), 1)
            wait_for(daemon, 1, 0)
            self.assertIn("ends in", listing(daemon))

    def test_the_grace_time_ends(self):
        with testing.Daemon("--job-grace", "2s") as daemon:
            environment = direct_environment(daemon)
            done = testing.run([self.ranks(), "rank", 0], env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            wait_for(daemon, 1, 0)
            wait_for(daemon, 0, 0)
            self.assertIn("no session came within its grace time", daemon.log_text())

    def test_a_job_in_its_grace_time_is_in_nobodys_way(self):
        with testing.Daemon("--max-sessions-per-gpu", "1", "--job-grace", "60s") as daemon:
            for _ in range(3):
                done = testing.run([self.ranks(), "rank", 0], env=direct_environment(daemon))
                self.assertEqual(done.returncode, 0, done.stderr)
                # The worker ends a moment after its client.
                wait_for(daemon, 1, 0)

    def test_memory_is_the_jobs(self):
        with testing.Daemon() as daemon, self.hold(daemon, 150, flags=("--memory", "256M")) as one:
            self.assertEqual(one.line(), "CUDA_SUCCESS free 106 total 256")
            ticket = self.ticket_of(one)
            with self.member(ticket, daemon, 150) as two:
                self.assertEqual(two.line(), "CUDA_ERROR_OUT_OF_MEMORY free 106 total 256")
                with self.member(ticket, daemon, 100) as three:
                    self.assertEqual(three.line(), "CUDA_SUCCESS free 6 total 256")
                    self.assertIn("250.0 MiB of 256.0 MiB", listing(daemon))
                    # Its worker is killed: what it held is the others' again.
                    pid = int(re.findall(r"worker (\d+) .*100\.0 MiB", listing(daemon))[0])
                    os.kill(pid, signal.SIGKILL)
                    wait_for(daemon, 1, 2)
                with self.member(ticket, daemon, 105) as four:
                    self.assertEqual(four.line(), "CUDA_SUCCESS free 1 total 256")
                    self.assertEqual(one.finish(), 0)
                    wait_for(daemon, 1, 2)
                wait_for(daemon, 1, 1)
                with self.member(ticket, daemon, 240) as five:
                    self.assertEqual(five.line(), "CUDA_SUCCESS free 16 total 256")
            wait_for(daemon, 0, 0)

    def test_another_ticket_is_refused_by_name(self):
        with testing.Daemon("--job-grace", "0s", gpus=2) as daemon, self.hold(daemon) as one:
            self.assertIn("CUDA_SUCCESS", one.line())
            ticket = self.ticket_of(one)
            self.assertRegex(ticket, "^[0-9a-f]{16}-[0-9a-f]{32}$")
            last = "1" if ticket[-1] == "0" else "0"
            for wrong, words in (
                (ticket[:-1] + last, "no such job"),
                ("f" * 16 + ticket[16:], "no such job"),
                ("nonsense", "FARGPU_JOB: not a job's id and key"),
            ):
                with self.subTest(wrong), self.member(wrong, daemon) as two:
                    self.assertIn("CUDA_ERROR_", two.line())
                    _, errors = two.process.communicate()
                    self.assertIn(words, errors)
                    self.assertEqual(len(errors.strip().splitlines()), 1, errors)
                    self.assertNotIn(wrong, errors)
            self.assertEqual(count(daemon), (1, 1))
            with self.member(ticket, daemon, FARGPU_GPUS=2) as two:
                self.assertIn("CUDA_ERROR_SYSTEM_NOT_READY", two.line())
                self.assertIn("another number of GPUs", two.process.communicate()[1])
            # After the job's end its ticket opens nothing.
            self.assertEqual(one.finish(), 0)
            wait_for(daemon, 0, 0)
            with self.member(ticket, daemon) as late:
                self.assertIn("CUDA_ERROR_NOT_PERMITTED", late.line())

    def test_a_ticket_is_no_token(self):
        with tempfile.TemporaryDirectory() as folder:
            token = pathlib.Path(folder) / "token"
            token.write_text("a-long-secret\n")
            token.chmod(0o600)
            with testing.Daemon("--token-file", token) as daemon:
                with self.hold(daemon, flags=("--token-file", token)) as one:
                    self.assertIn("CUDA_SUCCESS", one.line())
                    ticket = self.ticket_of(one)
                    with self.member(ticket, daemon) as two:
                        self.assertIn("CUDA_ERROR_NOT_PERMITTED", two.line())
                        self.assertIn("asks for a token", two.process.communicate()[1])
                    with self.member(ticket, daemon, FARGPU_TOKEN_FILE=token) as three:
                        self.assertIn("CUDA_SUCCESS", three.line())
                done = fargpu("run", "--server", daemon.server, "--", "true")
                self.assertEqual(done.returncode, 77, done.stderr)

    def test_neither_ps_nor_the_log_shows_the_key(self):
        with testing.Daemon(environment={"FARGPU_LOG": "trace"}) as daemon:
            with self.hold(daemon) as one:
                self.assertIn("CUDA_SUCCESS", one.line())
                job, key = self.ticket_of(one).split("-")
                job = id_text(int(job, 16))
                text = listing(daemon)
                self.assertIn(f"job {job}  held", text)
                self.assertIn("ranks", text)
                self.assertNotIn(key, text)
                for pid in daemon.workers():
                    shown = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                    shown += pathlib.Path(f"/proc/{pid}/environ").read_bytes()
                    self.assertNotIn(key.encode(), shown)
            wait_for(daemon, 0, 0)
            log = daemon.log_text()
            self.assertIn(f"event=job-end job={job}", log)
            self.assertRegex(log, rf"event=session-begin session=[0-9a-f]+-[0-9a-f]+ job={job}")
            self.assertRegex(log, rf"worker [0-9a-f]+-[0-9a-f]+ job {job}")
            self.assertNotIn(key, log)

    def test_the_job_ends_with_its_program(self):
        with testing.Daemon("--job-grace", "60s") as daemon:
            # One that uses no GPU has its job all the same, for its children.
            with Running(daemon.start("cat", stdin=subprocess.PIPE)) as idle:
                wait_for(daemon, 1, 0)
                self.assertIn("held, idle", listing(daemon))
                self.assertEqual(idle.finish(), 0)
                wait_for(daemon, 0, 0)
            for number in (signal.SIGTERM, signal.SIGKILL):
                with self.hold(daemon) as one:
                    self.assertIn("CUDA_SUCCESS", one.line())
                    holders = holder_of(one.process.pid)
                    self.assertEqual(len(holders), 1, holders)
                    one.process.send_signal(number)
                    self.assertEqual(one.process.wait(testing.LIMIT), -number)
                    wait_for(daemon, 0, 0)
                    testing.wait_until(
                        lambda pid=holders[0][0]: not testing.is_running(pid), "the holder ended"
                    )

    def test_a_detached_process_keeps_the_job(self):
        with testing.Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
            fifo = pathlib.Path(folder) / "fifo"
            os.mkfifo(fifo)
            script = f"{self.ranks()} hold 1 < {fifo} > /dev/null 2>&1 & read line; exit 4"
            start = daemon.start("bash", "-c", script, stdin=subprocess.PIPE)
            with Running(start) as program, open(fifo, "w"):
                wait_for(daemon, 1, 1)
                self.assertEqual(program.finish(), 4)
                testing.wait_until(lambda: "running" in listing(daemon), "nobody holds the job")
                self.assertEqual(count(daemon), (1, 1))
            wait_for(daemon, 0, 0)

    def test_the_holder_is_not_the_programs_business(self):
        with testing.Daemon() as daemon, self.hold(daemon) as one:
            self.assertIn("CUDA_SUCCESS", one.line())
            pid = one.process.pid
            ((holder, links),) = holder_of(pid)
            self.assertFalse([link for link in links if link.startswith("pipe:")], links)
            self.assertNotEqual(os.getpgid(holder), os.getpgid(pid))
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            self.assertEqual(children, [])
            # Killed, it lets the job go; the program goes on.
            os.kill(holder, signal.SIGKILL)
            testing.wait_until(lambda: "running" in listing(daemon), "nobody holds the job")
            with self.member(self.ticket_of(one), daemon) as two:
                self.assertIn("CUDA_SUCCESS", two.line())
            self.assertEqual(one.finish(), 0)
            wait_for(daemon, 0, 0)

    @unittest.skipUnless(may_unshare(), "needs the right to make namespaces")
    def test_the_first_process_of_a_container_holds_its_job_itself(self):
        # Orphans come to it: a holder would be its child, and a program that waits for all its
        # children would wait for ever.
        with testing.Daemon(gpus=2) as daemon:
            run = [testing.BUILD.fargpu, "run", "--server", daemon.server, "--gpus", "2", "--"]
            contained = ["unshare", "--pid", "--fork", "--kill-child", *map(str, run)]
            wait_for_all = "import os\ntry:\n  while True: os.wait()\nexcept OSError: pass"
            for program, code in (
                (["python3", "-c", wait_for_all], 0),
                (["bash", "-c", "exit 5"], 5),
            ):
                done = testing.run([*contained, *program], timeout=30)
                self.assertEqual(done.returncode, code, done.stderr)
            done = testing.run([*contained, self.ranks(), "spawn", 2])
            self.check_ranks(done)
            wait_for(daemon, 0, 0)

    def test_standard_descriptors_may_be_closed(self):
        for closed in ((0,), (1,), (2,), (0, 1), (0, 1, 2)):
            with self.subTest(closed), testing.Daemon() as daemon:
                script = "import os, sys\nfor fd in map(int, sys.argv[1].split()): os.close(fd)\n"
                script += "os.execv(sys.argv[2], sys.argv[2:])"
                run = [testing.BUILD.fargpu, "run", "--server", daemon.server, "--", self.ranks()]
                numbers = " ".join(map(str, closed))
                testing.run(["python3", "-c", script, numbers, *run, "rank", 0])
                # Not the exit code: the program may want to write.
                self.assertIn("event=session-begin", daemon.log_text())

    def test_a_socket_may_be_named_by_a_relative_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "socket"
            with testing.Daemon("--listen", path):
                flags = ("--server", "unix:socket")
                done = testing.run(
                    [testing.BUILD.fargpu, "run", *flags, "--", self.ranks(), "rank", 0], cwd=folder
                )
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_named_gpus_count_by_their_names(self):
        with testing.Daemon(gpus=2) as daemon:
            flags = ("--gpus", "1", "--device", "1", "--device", "0")
            self.check_ranks(daemon.run(self.ranks(), "spawn", 2, flags=flags))

    def test_a_run_inside_a_run_is_part_of_its_job(self):
        with testing.Daemon("--max-sessions-per-gpu", "1") as daemon:
            inner = (testing.BUILD.fargpu, "run", "--", self.ranks(), "rank", 0)
            done = daemon.run(*inner, flags=("--memory", "200M"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(re.findall("event=job-begin", daemon.log_text())), 1)

    def test_the_end_of_children_may_be_ignored(self):
        script = "import ctypes, os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        script += "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"  # PR_SET_CHILD_SUBREAPER
        script += "os.execv(sys.argv[1], sys.argv[1:])"
        with testing.Daemon() as daemon:
            run = [testing.BUILD.fargpu, "run", "--server", daemon.server, "--", self.ranks()]
            done = testing.run(["python3", "-c", script, *run, "rank", 0], timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_runs_may_follow_each_other_at_once(self):
        with testing.Daemon("--max-sessions-per-gpu", "1") as daemon:
            for _ in range(5):
                done = daemon.run(self.ranks(), "rank", 0)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_run_is_refused_before_its_program_starts(self):
        with testing.Daemon("--max-sessions-per-gpu", "1") as daemon, self.hold(daemon) as one:
            self.assertIn("CUDA_SUCCESS", one.line())
            for flags, code, words in (
                ((), 75, "already has 1 jobs"),
                (("--gpus", "2"), 2, "this server has 1"),
                (("--memory", "100G"), 2, "no GPU of this server has as much"),
            ):
                done = daemon.run("echo", "started", flags=flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(words, done.stderr)
            # The first has as many processes as it likes.
            with self.member(self.ticket_of(one), daemon) as two:
                self.assertIn("CUDA_SUCCESS", two.line())


if __name__ == "__main__":
    testing.main()
