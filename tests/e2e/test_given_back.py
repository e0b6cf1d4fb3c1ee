"""What a program had is given back when it has been waited for, as it is natively: memory of the
GPU, the job's limit, its seat at the server. The contexts of the simulated GPUs take memory here,
and time to end."""

import random
import socket
import sys
import threading
import time
import unittest

import fargpu_testing as testing

END = 300  # milliseconds
CONTEXT = 128  # MiB
ENVIRONMENT = {
    "FARGPU_SIM_CONTEXT_END": END,
    "FARGPU_SIM_CONTEXT_MEMORY": f"{CONTEXT}M",
}

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


class LateNetwork:
    """Forwards TCP connections to a daemon. The end of a client arrives `late` seconds after it."""

    def __init__(self, daemon, late):
        self.port, self.late = daemon.port, late
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.server = daemon.server.replace(f":{daemon.port}", f":{self.listener.getsockname()[1]}")
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            back = threading.Thread(target=self.carry, args=(server, client, 0), daemon=True)
            back.start()
            self.carry(client, server, self.late)
            back.join()

    @staticmethod
    def carry(source, target, late):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass
        time.sleep(late)
        try:
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


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

    def test_when_the_end_of_a_connection_is_late(self):
        program = testing.BUILD.program("random_endings")
        with LateNetwork(self.daemon, late=0.7) as network:
            seed = random.randrange(1 << 32)
            runner = [testing.BUILD.fargpu, "run", "--server", network.server]
            runner += ["--transport", "tcp", "--"]
            done = self.daemon.run(program, 6, seed, *runner)
            self.assertEqual(done.returncode, 0, f"seed {seed}\n{done.stdout}{done.stderr}")

    def test_while_a_worker_ahead_opens_its_driver(self):
        """Which takes longer than the end of the program's worker."""
        program = testing.BUILD.program("random_endings")
        slow = ENVIRONMENT | {"FARGPU_SIM_CONTEXT_END": "50", "FARGPU_SIM_INIT": "500"}
        with testing.Daemon(environment=slow) as daemon:
            seed = random.randrange(1 << 32)
            done = daemon.run(program, 5, seed)
            self.assertEqual(done.returncode, 0, f"seed {seed}\n{done.stdout}{done.stderr}")

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
