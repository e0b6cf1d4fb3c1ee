"""GPU memory that several processes share: who may, who pays, and what becomes of it when one of
them dies."""

import json
import os
import pathlib
import socket
import subprocess
import unittest

import fargpu_testing as testing

OK = "CUDA_SUCCESS"


class Member:
    """A process of programs/share.cc. Ends when its socket does."""

    def __init__(self, start):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(testing.LIMIT)
        with theirs:
            self.process = start(theirs)

    def __enter__(self):
        if self.hear() != ("ready", []):
            raise AssertionError("not ready")
        return self

    def __exit__(self, *_):
        self.socket.close()
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def hear(self):
        text, descriptors, _, _ = socket.recv_fds(self.socket, 1024, 1)
        if not text:
            raise AssertionError("it has ended: " + self.process.stderr.read())
        return text.decode(), descriptors

    def do(self, command, descriptor=None):
        socket.send_fds(self.socket, [command.encode()], [] if descriptor is None else [descriptor])
        text, descriptors = self.hear()
        return (text, descriptors[0]) if descriptors else text

    def kill(self):
        self.process.kill()
        self.process.wait()


class Sharing(unittest.TestCase):
    @staticmethod
    def first(daemon, *flags):
        """Of a job of its own."""
        return Member(
            lambda theirs: daemon.start(testing.BUILD.program("share"), flags=flags, stdin=theirs)
        )

    @staticmethod
    def further(daemon, member, **environment):
        """Of the job of `member`."""
        environ = pathlib.Path(f"/proc/{member.process.pid}/environ").read_bytes().split(b"\0")
        ticket = next(each for each in environ if each.startswith(b"FARGPU_JOB="))
        return Member(
            lambda theirs: subprocess.Popen(
                [testing.BUILD.program("share")],
                env=testing.clean_environment(
                    FARGPU_SERVER=daemon.server,
                    LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                    FARGPU_JOB=ticket.decode().split("=", 1)[1],
                    **environment,
                ),
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def exported(self, member, mebibytes, value):
        self.assertEqual(member.do(f"create {mebibytes}"), OK)
        self.assertEqual(member.do(f"write {value}"), OK)
        result, descriptor = member.do("export")
        self.assertEqual(result, OK)
        self.addCleanup(os.close, descriptor)
        return descriptor

    def used_is(self, member, mebibytes):
        """The daemon may need a moment to see that a worker is gone."""
        testing.wait_until(
            lambda: member.do("used") == f"{OK} {mebibytes}",
            f"{mebibytes} MiB used, instead of {member.do('used')}",
        )

    def test_memory_counts_once(self):
        with testing.Daemon() as daemon, self.first(daemon, "--memory", "100M") as one:
            with self.further(daemon, one) as two, self.further(daemon, one) as three:
                descriptor = self.exported(one, 60, 7)
                for other in (two, three):
                    self.assertEqual(other.do("import 60", descriptor), OK)
                    self.assertEqual(other.do("read"), f"{OK} 7")
                self.assertEqual(two.do("write 8"), OK)
                for each in (one, two, three):
                    self.assertEqual(each.do("read"), f"{OK} 8")
                    self.assertEqual(each.do("used"), f"{OK} 60")
                self.assertEqual(two.do("take 50"), "CUDA_ERROR_OUT_OF_MEMORY")
                self.assertEqual(two.do("take 30"), OK)
                self.assertEqual(three.do("release"), OK)
                self.assertEqual(one.do("used"), f"{OK} 90")

    def test_who_has_it_last_pays(self):
        with testing.Daemon() as daemon, self.first(daemon, "--memory", "100M") as one:
            with self.further(daemon, one) as two:
                descriptor = self.exported(one, 60, 7)
                self.assertEqual(two.do("import 60", descriptor), OK)
                self.assertEqual(one.do("release"), OK)
                self.used_is(one, 60)
                self.assertEqual(two.do("read"), f"{OK} 7")
                # Nobody else can have it any more.
                self.assertEqual(one.do("import 60", descriptor), "CUDA_ERROR_INVALID_VALUE")
                self.assertEqual(two.do("release"), OK)
                self.used_is(one, 0)

    def test_an_exporter_that_dies(self):
        with testing.Daemon() as daemon, self.first(daemon, "--memory", "100M") as one:
            with self.further(daemon, one) as two, self.further(daemon, one) as three:
                descriptor = self.exported(two, 60, 9)
                self.assertEqual(three.do("import 60", descriptor), OK)
                two.kill()
                self.used_is(one, 60)
                self.assertEqual(three.do("read"), f"{OK} 9")
                self.assertEqual(one.do("import 60", descriptor), "CUDA_ERROR_INVALID_VALUE")
                self.assertEqual(three.do("release"), OK)
                self.used_is(one, 0)

    def test_an_importer_that_dies(self):
        with testing.Daemon() as daemon, self.first(daemon, "--memory", "100M") as one:
            with self.further(daemon, one) as two:
                descriptor = self.exported(one, 60, 9)
                self.assertEqual(two.do("import 60", descriptor), OK)
                self.assertEqual(two.do("write 10"), OK)
                two.kill()
            self.assertEqual(one.do("read"), f"{OK} 10")
            self.assertEqual(one.do("used"), f"{OK} 60")
            with self.further(daemon, one) as three:
                self.assertEqual(three.do("import 60", descriptor), OK)
                self.assertEqual(three.do("read"), f"{OK} 10")
            self.assertEqual(one.do("release"), OK)
            self.used_is(one, 0)

    def handle(self, member, command):
        result, handle = member.do(command).split()
        self.assertEqual(result, OK)
        return handle

    def test_handles_of_one_that_dies(self):
        with testing.Daemon() as daemon, self.first(daemon) as one:
            with self.further(daemon, one) as two:
                self.assertEqual(two.do("alloc 8"), OK)
                self.assertEqual(two.do("write 5"), OK)
                memory, event = self.handle(two, "handle"), self.handle(two, "event")
                self.assertEqual(two.do("record"), OK)
                self.assertEqual(one.do(f"open {memory}"), OK)
                self.assertEqual(one.do(f"open_event {event}"), OK)
                self.assertEqual(one.do("synchronize"), OK)
                self.assertEqual(one.do("read"), f"{OK} 5")
                two.kill()
                testing.wait_until(lambda: len(daemon.workers()) == 1, "its worker has ended")
            self.assertEqual(one.do("synchronize"), OK)
            self.assertEqual(one.do("record"), OK)
            self.assertEqual(one.do("write 6"), OK)
            self.assertEqual(one.do("read"), f"{OK} 6")
            self.assertEqual(one.do("close"), OK)
            self.assertEqual(one.do(f"open {memory}"), "CUDA_ERROR_INVALID_VALUE")
            self.assertEqual(one.do(f"open_event {event}"), "CUDA_ERROR_MAP_FAILED")

    def pool(self, member, mebibytes, value):
        """What importers of the pool and of its memory need."""
        text, descriptor = member.do(f"pool {mebibytes}")
        self.addCleanup(os.close, descriptor)
        result, data = text.split()
        self.assertEqual(result, OK)
        self.assertEqual(member.do(f"write {value}"), OK)
        return f"import_pool {data}", descriptor

    def test_memory_of_pools_counts_once(self):
        with testing.Daemon() as daemon, self.first(daemon, "--memory", "100M") as one:
            with self.further(daemon, one) as two:
                pool = self.pool(one, 60, 7)
                self.assertEqual(two.do(*pool), OK)
                self.assertEqual(two.do("read"), f"{OK} 7")
                self.assertEqual(two.do("write 8"), OK)
                self.assertEqual(one.do("read"), f"{OK} 8")
                for each in (one, two):
                    self.assertEqual(each.do("used"), f"{OK} 60")
                self.assertEqual(two.do("take 50"), "CUDA_ERROR_OUT_OF_MEMORY")
                self.assertEqual(two.do("free"), OK)
                self.assertEqual(two.do("used"), f"{OK} 60")
                self.assertEqual(one.do("free"), OK)
                self.assertEqual(one.do("used"), f"{OK} 0")
                self.assertEqual(two.do(*pool), "CUDA_ERROR_INVALID_VALUE")

    def test_a_pool_of_one_that_dies(self):
        with testing.Daemon() as daemon, self.first(daemon) as one:
            with self.further(daemon, one) as two:
                pool = self.pool(two, 8, 5)
                self.assertEqual(one.do(*pool), OK)
                self.assertEqual(one.do("read"), f"{OK} 5")
                two.kill()
                testing.wait_until(lambda: len(daemon.workers()) == 1, "its worker has ended")
            self.assertEqual(one.do("write 6"), OK)
            self.assertEqual(one.do("read"), f"{OK} 6")
            self.assertEqual(one.do("free"), OK)
            self.assertEqual(one.do(*pool), "CUDA_ERROR_INVALID_VALUE")
            self.used_is(one, 0)

    @testing.not_with_an_older_release("its limit does not hold there")
    def test_memory_whose_maker_has_gone_counts_for_who_has_it(self):
        for of_pool in (False, True):
            for dies in (False, True):
                with self.subTest(of_pool=of_pool, dies=dies), testing.Daemon() as daemon:
                    self.count_without_maker(daemon, of_pool, dies)

    def count_without_maker(self, daemon, of_pool, dies):
        with self.first(daemon, "--memory", "100M") as one:
            with self.further(daemon, one) as two:
                if of_pool:
                    opens = self.pool(two, 60, 5)
                else:
                    self.assertEqual(two.do("alloc 60"), OK)
                    opens = (f"open {self.handle(two, 'handle')}",)
                self.assertEqual(one.do(*opens), OK)
                self.used_is(one, 60)
                if dies:
                    two.kill()
                    testing.wait_until(lambda: len(daemon.workers()) == 1, "its worker has ended")
                else:
                    self.assertEqual(two.do("free"), OK)
                self.used_is(one, 60)
                self.assertEqual(one.do("take 50"), "CUDA_ERROR_OUT_OF_MEMORY")
                self.assertEqual(one.do("free" if of_pool else "close"), OK)
                self.used_is(one, 0)

    def test_pools_are_for_processes_of_the_job(self):
        with testing.Daemon(gpus=2) as daemon:
            with self.first(daemon, "--gpus", "1") as one, self.first(daemon, "--gpus", "1") as two:
                self.assertEqual(two.do(*self.pool(one, 2, 1)), "CUDA_ERROR_NOT_PERMITTED")
            with self.first(daemon, "--gpus", "2") as one:
                pool, memory = self.pool(one, 2, 1), self.exported(one, 2, 3)
                with self.further(daemon, one, CUDA_VISIBLE_DEVICES="1") as two:
                    self.assertEqual(two.do(*pool), "CUDA_ERROR_INVALID_DEVICE")
                with self.further(daemon, one) as two:
                    self.assertEqual(two.do(pool[0], memory), "CUDA_ERROR_NOT_SUPPORTED")
                    self.assertEqual(two.do("import 2", pool[1]), "CUDA_ERROR_NOT_SUPPORTED")
                    self.assertEqual(two.do(*pool), OK)

    def test_handles_are_not_for_other_jobs(self):
        with testing.Daemon() as daemon, self.first(daemon) as one, self.first(daemon) as other:
            self.assertEqual(one.do("alloc 8"), OK)
            memory, event = self.handle(one, "handle"), self.handle(one, "event")
            self.assertEqual(other.do(f"open {memory}"), "CUDA_ERROR_NOT_PERMITTED")
            self.assertEqual(other.do(f"open_event {event}"), "CUDA_ERROR_NOT_PERMITTED")
            # Another secret, and bytes that are no handle.
            guess = memory[:64] + format(int(memory[64:96], 16) ^ 1, "032x") + memory[96:]
            with self.further(daemon, one) as two:
                self.assertEqual(two.do(f"open {guess}"), "CUDA_ERROR_INVALID_VALUE")
                self.assertEqual(two.do(f"open {'00' * 64}"), "CUDA_ERROR_INVALID_VALUE")
                self.assertEqual(two.do(f"open_event {'00' * 64}"), "CUDA_ERROR_MAP_FAILED")
                self.assertEqual(two.do(f"open_event {memory}"), "CUDA_ERROR_MAP_FAILED")
                self.assertEqual(two.do(f"open {memory}"), OK)

    def test_not_on_a_hidden_gpu(self):
        with testing.Daemon(gpus=2) as daemon:
            with self.first(daemon, "--gpus", "2", "--memory", "100M") as one:
                descriptor = self.exported(one, 2, 11)
                self.assertEqual(one.do("alloc 8"), OK)
                memory = self.handle(one, "handle")
                with self.further(daemon, one, CUDA_VISIBLE_DEVICES="1") as two:
                    self.assertEqual(two.do("import 2", descriptor), "CUDA_ERROR_INVALID_DEVICE")
                    self.assertEqual(two.do(f"open {memory}"), "CUDA_ERROR_INVALID_DEVICE")
                with self.further(daemon, one, CUDA_VISIBLE_DEVICES="1,0") as two:
                    self.assertEqual(two.do(f"open {memory}"), OK)
                self.assertEqual(one.do("used"), f"{OK} 10")

    def test_not_between_jobs(self):
        with testing.Daemon("--max-sessions-per-gpu", "2") as daemon:
            with self.first(daemon) as one, self.first(daemon) as other:
                descriptor = self.exported(one, 2, 11)
                self.assertEqual(other.do("import 2", descriptor), "CUDA_ERROR_NOT_PERMITTED")
                self.assertEqual(one.do("read"), f"{OK} 11")
                other.socket.close()
                _, said = other.process.communicate(timeout=testing.LIMIT)
                self.assertIn("belongs to another job", said)
                self.assertIn("event=not-imported", daemon.log_text())
            self.assertNotIn("event=worker-broke-protocol", daemon.log_text())

    def test_not_between_servers(self):
        with testing.Daemon() as daemon, testing.Daemon("--sim-slot", "1") as other_daemon:
            with self.first(daemon) as one, self.first(other_daemon) as other:
                descriptor = self.exported(one, 2, 11)
                self.assertEqual(other.do("import 2", descriptor), "CUDA_ERROR_NOT_PERMITTED")

    def test_a_model_over_two_gpus(self):
        """tests/apps/serving_ranks.cu, which checks itself: processes whose kernels wait for each
        other, in graphs, while physical memory comes and goes."""
        values = set()
        for ranks in (1, 2):
            with testing.Daemon(gpus=ranks) as daemon:
                done = daemon.run(
                    testing.BUILD.program("serving_ranks"), ranks, flags=("--gpus", ranks)
                )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            values.update(json.loads(done.stdout)["values"])
        self.assertEqual(len(values), 1)


if __name__ == "__main__":
    testing.main()
