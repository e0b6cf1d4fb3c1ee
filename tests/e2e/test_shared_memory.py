"""Host memory shared by client and worker: what it makes possible, that staging in it is right, and
that all works without it."""

import pathlib
import re
import subprocess
import sys
import unittest

import fargpu_testing as testing

# Makes a context, and then 64 MiB of pinned memory that it does not touch; waits before and after.
PINNED = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(os.getpid(), flush=True)
sys.stdin.readline()
assert cuda.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(64 << 20), 0) == 0
print("memory", flush=True)
sys.stdin.readline()
"""


def shared_pages(pid):
    """MiB of memory files that this process has touched."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssShmem:\s+(\d+) kB", status)[1]) >> 10


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

    @unittest.skipUnless(testing.WORKER_SHARES_MEMORY, "the worker shares no memory here")
    def test_the_worker_is_the_first_to_touch_pinned_memory(self):
        """The system charges a page to the process that touches it first."""
        program = self.daemon.start(
            sys.executable, "-c", PINNED, flags=("--transport", "shm"), stdin=subprocess.PIPE
        )
        client = int(program.stdout.readline())
        worker = self.daemon.worker_of(client)
        before = shared_pages(worker), shared_pages(client)
        program.stdin.write("\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), "memory\n")
        after = shared_pages(worker), shared_pages(client)
        self.assertGreaterEqual(after[0] - before[0], 64)
        self.assertLess(after[1] - before[1], 32)  # of its rings it takes some meanwhile
        program.communicate("\n", timeout=testing.LIMIT)

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
