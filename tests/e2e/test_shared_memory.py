"""Host memory shared by client and worker: what it makes possible, that staging in it is right, and
that all works without it."""

import unittest

import fargpu_testing as testing


class SharedMemory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon(gpus=1).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None)

    def check_right(self, what, transport, **environment):
        done = self.daemon.run(
            testing.BUILD.program("shared_memory"),
            what,
            flags=("--transport", transport),
            env=testing.clean_environment(**environment),
        )
        self.assertEqual((done.returncode, done.stdout), (0, f"{what}: right\n"), done.stderr)

    @unittest.skipUnless(
        testing.WORKER_SHARES_MEMORY,
        "the worker's sanitizer lets it share no memory of this client",
    )
    def test_copies_of_pinned_memory_are_asynchronous(self):
        self.check_right("async", "shm")

    def test_a_stream_that_stands_still_holds_up_no_other(self):
        self.check_right("held", "shm")
        self.check_right("held", "tcp")

    def test_large_pageable_copies(self):
        for threads in (1, 3):
            with self.subTest(threads=threads):
                self.check_right("large", "shm", FARGPU_COPY_THREADS=threads)
        self.check_right("large", "tcp")

    def test_large_copies_without_shared_memory(self):
        self.check_right("large", "shm", FARGPU_ZERO_COPY=0)

    def test_every_call_waiting(self):
        self.check_right("large", "shm", FARGPU_SYNC=1)

    def test_output_of_kernels_comes_before_a_large_copy_returns(self):
        done = self.daemon.run(
            testing.BUILD.program("printf_large_copy"), flags=("--transport", "shm")
        )
        want = [line for i in range(20) for line in (f"host {i}", f"device {i}")]
        self.assertEqual((done.returncode, done.stdout.splitlines()), (0, want), done.stderr)


if __name__ == "__main__":
    testing.main()
