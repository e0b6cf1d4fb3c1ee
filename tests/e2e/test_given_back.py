"""What a program had is given back when it has been waited for, as it is natively: memory of the
GPU, the job's limit, its seat at the server. The contexts of the simulated GPUs take memory here,
and time to end."""

import random
import sys
import unittest

import fargpu_testing as testing

END = 300  # milliseconds
CONTEXT = 128  # MiB
ENVIRONMENT = {"FARGPU_SIM_CONTEXT_END": END, "FARGPU_SIM_CONTEXT_MEMORY": f"{CONTEXT}M"}

# Starts the program that is named, which takes 256 MiB, kills it, and says what NVML shows: bytes
# in use, bytes that are free, and how many processes.
NVML = """
import ctypes, socket, subprocess, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = subprocess.Popen(sys.argv[1:], stdin=theirs)
theirs.close()
def hear(): return ours.recv(1024).decode()
assert hear() == "ready"
ours.send(b"alloc 256")
assert hear().startswith("CUDA_SUCCESS")
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
memory = (ctypes.c_ulonglong * 3)()
count = ctypes.c_uint(0)
def look():
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    count.value = 0
    nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), None)
    return memory[2] >> 20, memory[1] >> 20, count.value
during = look()
child.kill()
child.wait()
print(*during, *look())
"""


class GivenBack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon(environment=ENVIRONMENT).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None)

    def end_jobs(self, count, *flags, own_jobs=True):
        seed = random.randrange(1 << 32)
        program = testing.BUILD.program("random_endings")
        runner = [testing.BUILD.fargpu, "run", "--server", self.daemon.server, *flags, "--"]
        done = self.daemon.run(program, count, seed, *(runner if own_jobs else ()), flags=flags)
        self.assertEqual(done.returncode, 0, f"seed {seed}\n{done.stdout}{done.stderr}")

    def test_of_random_endings(self):
        self.end_jobs(10)

    def test_within_a_limit(self):
        self.end_jobs(5, "--memory", "2G", own_jobs=False)

    def test_to_the_next_program(self):
        program = testing.BUILD.program("memory_report")
        for _ in range(4):
            done = self.daemon.run(program, 3700)
            self.assertIn("3700 MiB: cudaSuccess", done.stdout, done.stderr)

    def test_its_seat(self):
        program = testing.BUILD.program("ending")
        with testing.Daemon("--max-sessions-per-gpu", 1, environment=ENVIRONMENT) as daemon:
            for _ in range(4):
                done = daemon.run(program, "exit", "0")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_as_nvml_shows_it(self):
        done = self.daemon.run(sys.executable, "-c", NVML, testing.BUILD.program("share"))
        self.assertEqual(done.returncode, 0, done.stderr)
        used, free, processes, used_then, free_then, processes_then = map(int, done.stdout.split())
        self.assertEqual((used, processes), (256, 1))
        self.assertEqual((used_then, processes_then), (0, 0))
        self.assertEqual(free_then - free, 256 + CONTEXT)


if __name__ == "__main__":
    testing.main()
