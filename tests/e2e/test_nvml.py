"""NVML of a program's job, by nvidia-ml-py: only the job's GPUs and memory, its processes, several
servers, fork, the end of a daemon, and a client that breaks the rules."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import unittest

import fargpu_testing as testing

PYTHON = str(testing.ROOT / ".deps" / "python")
sys.path.append(PYTHON)
try:
    import pynvml
except ImportError:
    pynvml = None

MANAGE = 19
LIMIT = 64 << 20
PRELUDE = f"""
import ctypes, json, os, signal, sys, time
sys.path.append({PYTHON!r})
from pynvml import *

def take_memory(size, device=0):
    cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) == 0

def handles():
    return [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]

def error(call, *arguments):
    try:
        call(*arguments)
    except NVMLError as found:
        return found.value
    return 0
"""


def setUpModule():
    if pynvml is None:
        raise unittest.SkipTest("nvidia-ml-py is not there: scripts/setup fetches it")


class Job(unittest.TestCase):
    """A daemon with three GPUs, of which a program has two."""

    def setUp(self):
        self.daemon = testing.Daemon(gpus=3).__enter__()
        self.addCleanup(self.leave)

    def leave(self):
        failed = any(error for _, error in getattr(self._outcome, "errors", []) or [])
        self.daemon.__exit__(AssertionError if failed else None, None, None)

    def ask(self, script, flags=("--gpus", "2", "--memory", "64M"), server=None, **environment):
        """What the script prints, as JSON, and its stderr."""
        done = testing.run(
            [
                testing.BUILD.fargpu,
                "run",
                "--server",
                server or self.daemon.server,
                *flags,
                "--",
                sys.executable,
                "-c",
                PRELUDE + script,
            ],
            env=testing.clean_environment(**environment),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_only_the_jobs_gpus_and_memory(self):
        found, errors = self.ask(
            """
nvmlInit()
all = handles()
print(json.dumps({
    "uuids": [nvmlDeviceGetUUID(h) for h in all],
    "total": [nvmlDeviceGetMemoryInfo(h).total for h in all],
    "used": [nvmlDeviceGetMemoryInfo(h, version=nvmlMemory_v2).used for h in all],
    "third": error(nvmlDeviceGetHandleByIndex, 2),
    "stranger": error(nvmlDeviceGetHandleByUUID, "GPU-00000000-0000-0000-0000-000000000000"),
    "same": [nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(h))) for h in all],
    "by_bus": [nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId(nvmlDeviceGetPciInfo(h).busId))
               for h in all],
    "name": nvmlDeviceGetName(all[0]),
    "clocks": nvmlDeviceGetSupportedMemoryClocks(all[0]),
    "setter": error(nvmlDeviceSetPersistenceMode, all[0], 1),
    "ancestor": nvmlDeviceGetTopologyCommonAncestor(all[0], all[1]),
    "cuda_is_loaded": "libcuda" in open("/proc/self/maps").read(),
}))
""",
            CUDA_VISIBLE_DEVICES="1",
        )
        self.assertEqual(errors, "")
        self.assertEqual(len(set(found["uuids"])), 2)
        self.assertEqual(found["total"], [LIMIT, LIMIT])
        self.assertEqual(found["used"], [0, 0])
        self.assertEqual(found["third"], pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.assertEqual(found["stranger"], pynvml.NVML_ERROR_NOT_FOUND)
        self.assertEqual(found["same"], [0, 1])
        self.assertEqual(found["by_bus"], [0, 1])
        self.assertIn("simulated GPU", found["name"])
        self.assertTrue(found["clocks"])
        self.assertEqual(found["setter"], pynvml.NVML_ERROR_NO_PERMISSION)
        self.assertEqual(found["ancestor"], pynvml.NVML_TOPOLOGY_NODE)
        self.assertFalse(found["cuda_is_loaded"])

    def test_memory_and_processes_of_the_job(self):
        found, _ = self.ask(
            """
nvmlInit()
take_memory(8 << 20)
child = os.fork()
if child == 0:
    os.execvp(sys.executable, [sys.executable, "-c", PRELUDE + '''
take_memory(4 << 20, 1)
print("ready", file=sys.stderr, flush=True)
signal.pause()
'''])
all = handles()
while len(nvmlDeviceGetComputeRunningProcesses(all[1])) == 0:
    time.sleep(0.02)
processes = [[(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses(h)]
             for h in all]
name = nvmlSystemGetProcessName(child)
memory = nvmlDeviceGetMemoryInfo(all[0])
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
while nvmlDeviceGetComputeRunningProcesses(all[1]):
    time.sleep(0.02)
print(json.dumps({"me": os.getpid(), "child": child, "processes": processes, "name": name,
                  "used": memory.used, "free": memory.free}))
""".replace("PRELUDE", repr(PRELUDE))
        )
        self.assertEqual(found["processes"][0], [[found["me"], 8 << 20]])
        self.assertEqual(found["processes"][1], [[found["child"], 4 << 20]])
        self.assertIn("python", found["name"])
        self.assertEqual((found["used"], found["free"]), (8 << 20, LIMIT - (8 << 20)))

    def test_order_and_identities_are_those_of_cuda(self):
        found, _ = self.ask("""
nvmlInit()
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
uuids = []
for i in range(2):
    uuid = (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGetUuid_v2(uuid, i) == 0
    uuids.append(bytes(uuid).hex())
print(json.dumps([uuids, [nvmlDeviceGetUUID(h)[4:].replace("-", "") for h in handles()]]))
""")
        self.assertEqual(found[0], found[1])

    def test_init_is_counted_and_can_be_repeated(self):
        found, _ = self.ask("""
before = error(nvmlDeviceGetCount)
nvmlInit(); nvmlInit(); nvmlShutdown()
between = error(nvmlDeviceGetCount)
nvmlShutdown()
after = error(nvmlDeviceGetCount)
nvmlInit()
print(json.dumps([before, between, after, nvmlDeviceGetCount()]))
""")
        uninitialised = pynvml.NVML_ERROR_UNINITIALIZED
        self.assertEqual(found, [uninitialised, 0, uninitialised, 2])

    def test_a_forked_child_has_a_session_of_its_own(self):
        found, errors = self.ask("""
nvmlInit()
handle = handles()[1]
read, write = os.pipe()
if os.fork() == 0:
    said = [nvmlDeviceGetMemoryInfo(handle).total, nvmlDeviceGetCount()]
    nvmlShutdown()
    said.append(error(nvmlDeviceGetCount))
    nvmlInit()
    said.append(nvmlDeviceGetCount())
    os.write(write, json.dumps(said).encode())
    os._exit(0)
os.wait()
print(json.dumps([json.loads(os.read(read, 1000)), nvmlDeviceGetMemoryInfo(handle).total]))
""")
        self.assertEqual(found, [[LIMIT, 2, pynvml.NVML_ERROR_UNINITIALIZED, 2], LIMIT])
        self.assertEqual(errors, "")

    def test_forks_beside_threads_that_use_it(self):
        """A child finds nothing locked, and no connection of its parent's is left open in it."""
        found, _ = self.ask(
            """
import threading
nvml = ctypes.CDLL("libnvidia-ml.so.1")
stop = threading.Event()

def sets():
    made = ctypes.c_void_p()
    while not stop.is_set():
        if nvml.nvmlEventSetCreate(ctypes.byref(made)) == 0:
            nvml.nvmlEventSetFree(made)

def begin_and_end():
    while not stop.is_set():
        nvml.nvmlInit_v2()
        nvml.nvmlShutdown()

def sockets():
    names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.readlink(n).startswith("socket:") for n in names if os.path.exists(n))

inherited = sockets()
nvml.nvmlInit_v2()
threads = [threading.Thread(target=work) for work in (sets, sets, begin_and_end)]
for thread in threads:
    thread.start()
codes = []
for round in range(25):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        made = ctypes.c_void_p()
        left = sockets() - inherited
        os._exit(left or nvml.nvmlEventSetCreate(ctypes.byref(made)))
    codes.append(os.waitpid(child, 0)[1])
stop.set()
for thread in threads:
    thread.join()
print(json.dumps(codes))
"""
        )
        self.assertEqual(found, [0] * 25)

    def test_a_room_larger_than_any_answer(self):
        found, _ = self.ask(
            """
nvmlInit()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, room = ctypes.c_void_p(), 1 << 20
states = ctypes.create_string_buffer(room)
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
print(json.dumps([
    nvml.nvmlDeviceGetSupportedPerformanceStates(device, states, room),
    error(nvmlDeviceGetMemoryInfo, handles()[0]),
]))
"""
        )
        self.assertEqual(found, [0, 0])

    def test_threads(self):
        found, _ = self.ask("""
import threading
nvmlInit()
wrong = []
def look(handle):
    for _ in range(200):
        if nvmlDeviceGetMemoryInfo(handle).total != 64 << 20: wrong.append(1)
        nvmlInit(); nvmlShutdown()
threads = [threading.Thread(target=look, args=(h,)) for h in handles() * 4]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps(wrong))
""")
        self.assertEqual(found, [])

    def test_events_time_out_and_hold_nobody_up(self):
        found, _ = self.ask("""
import threading
nvmlInit()
events = nvmlEventSetCreate()
results = []
def wait():
    start = time.monotonic()
    results.append(error(nvmlEventSetWait_v2, events, 700))
    results.append(time.monotonic() - start)
waiter = threading.Thread(target=wait)
waiter.start()
start, calls = time.monotonic(), 0
while waiter.is_alive():
    nvmlDeviceGetUtilizationRates(handles()[0])
    calls += 1
waiter.join()
nvmlEventSetFree(events)
print(json.dumps([results, calls]))
""")
        (result, seconds), calls = found
        self.assertEqual(result, pynvml.NVML_ERROR_TIMEOUT)
        self.assertGreaterEqual(seconds, 0.65)
        self.assertGreater(calls, 5)

    def test_the_daemon_ends(self):
        program = self.daemon.start(
            sys.executable,
            "-c",
            PRELUDE
            + """
nvmlInit()
handle = handles()[0]
print("ready", flush=True)
sys.stdin.readline()
print(error(nvmlDeviceGetUtilizationRates, handle), error(nvmlDeviceGetCount), flush=True)
""",
            stdin=subprocess.PIPE,
        )
        self.assertEqual(program.stdout.readline(), "ready\n")
        for worker in self.daemon.workers():
            os.kill(worker, 9)
        testing.wait_until(lambda: not self.daemon.workers(), "the worker is gone")
        out, errors = program.communicate("go\n", timeout=60)
        self.assertEqual(out, f"{pynvml.NVML_ERROR_GPU_IS_LOST} 0\n")
        self.assertIn("is lost", errors)

    def test_a_monitor_holds_up_no_end_of_the_daemon(self):
        program = self.daemon.start(
            sys.executable,
            "-c",
            PRELUDE + 'nvmlInit(); print("ready", flush=True); time.sleep(60)',
        )
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        self.daemon.process.terminate()
        self.assertEqual(self.daemon.process.wait(timeout=15), 0)
        program.kill()
        program.communicate()

    def test_ps_tells_it_apart(self):
        program = self.daemon.start(
            sys.executable,
            "-c",
            PRELUDE + 'nvmlInit(); print("ready", flush=True); time.sleep(60)',
        )
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        listed = testing.run([testing.BUILD.fargpu, "ps", "--server", self.daemon.server]).stdout
        self.assertIn("management", listed)

    def test_smi(self):
        found, _ = self.ask(f"""
import subprocess
take_memory(8 << 20, 1)
def smi(*arguments):
    return subprocess.run([{str(testing.BUILD.fargpu)!r}, "smi", *arguments],
                          capture_output=True, text=True).stdout
print(json.dumps([os.getpid(), smi(), smi("-L")]))
""")
        pid, page, listed = found
        lines = page.splitlines()
        self.assertEqual({len(line) for line in lines if line}, {91})
        self.assertEqual([line.count("8MiB / 64MiB") for line in lines].count(1), 1)
        self.assertRegex(page, rf"\| +1 +N/A +N/A +{pid} +C +\S+ +8MiB \|")
        self.assertRegex(listed, r"\AGPU 0: .+ \(UUID: GPU-\S+\)\nGPU 1: .+ \(UUID: GPU-\S+\)\n\Z")

    def test_smi_by_itself(self):
        done = testing.run([testing.BUILD.fargpu, "smi", "--server", self.daemon.server, "-L"])
        self.assertEqual((done.returncode, done.stdout.count("GPU-")), (0, 1), done.stderr)
        done = testing.run([testing.BUILD.fargpu, "smi", "--server", "127.0.0.1:1"])
        self.assertEqual((done.returncode, done.stdout), (69, ""))
        self.assertIn("127.0.0.1:1", done.stderr)

    def test_no_server(self):
        done = testing.run(
            [sys.executable, "-c", PRELUDE + "print(error(nvmlInit))"],
            env=testing.clean_environment(LD_LIBRARY_PATH=testing.BUILD.client_libraries),
        )
        self.assertEqual(done.stdout.strip(), str(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
        self.assertIn("FARGPU_SERVER is not set", done.stderr)


class SeveralServers(unittest.TestCase):
    def test_devices_one_after_the_other(self):
        with testing.Daemon(gpus=2) as a, testing.Daemon(gpus=1) as b:
            script = """
nvmlInit()
all = handles()
print(json.dumps({
    "uuids": [nvmlDeviceGetUUID(h) for h in all],
    "domains": [nvmlDeviceGetPciInfo(h).domain for h in all],
    "bus": [nvmlDeviceGetPciInfo(h).busId for h in all],
    "level": nvmlDeviceGetTopologyCommonAncestor(all[0], all[1]),
    "p2p": nvmlDeviceGetP2PStatus(all[0], all[1], 0),
}))
"""
            done = testing.run(
                [testing.BUILD.fargpu, "run", "--server", f"{a.server},{b.server}", "--"]
                + [sys.executable, "-c", PRELUDE + script]
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual(len(set(found["uuids"])), 2)
            self.assertEqual(found["domains"], [0, 1])
            self.assertEqual(found["bus"][1][:9], "00000001:")
            self.assertEqual(found["level"], pynvml.NVML_TOPOLOGY_SYSTEM)
            self.assertEqual(found["p2p"], pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)


class Hostile(unittest.TestCase):
    """A client that breaks the rules loses its session, and nothing else."""

    def setUp(self):
        if testing.tls_certificates():
            self.skipTest("the frames are sent in the clear")

    def opcode(self, name):
        registry = (testing.ROOT / "schema/api/nvml_registry.yml").read_text()
        return int(registry.split(f"\n{name}: ")[1].split()[0])

    def manage(self, daemon):
        connection = daemon.connect()
        self.addCleanup(connection.close)
        connection.sendall(testing.frame(MANAGE, testing.hello_body()))
        return connection, testing.receive_frame(connection)

    def call(self, arguments):
        text = '(arguments = 0x"' + arguments.hex() + '")' if arguments else "()"
        return testing.capnp_encode("NvmlCall", text)

    def test_malformed_arguments_end_the_session(self):
        name = self.opcode("nvmlDeviceGetName")
        temperature = self.opcode("nvmlDeviceGetTemperature")
        clocks = self.opcode("nvmlDeviceGetSupportedMemoryClocks")
        word = struct.Struct("<Q").pack
        with testing.Daemon(gpus=1) as daemon:
            for opcode, arguments in (
                (temperature, b""),
                (temperature, word(0)),
                (temperature, word(0) * 3),
                (temperature, word(0) + b"123"),
                (name, word(0) + word(1) + word(0xFFFFFFFF)),
                (clocks, word(0) + word(0xFFFFFFFF) + word(1)),
            ):
                connection, welcome = self.manage(daemon)
                self.assertEqual(welcome[0][7], 0)
                connection.sendall(testing.frame(opcode, self.call(arguments)))
                with self.subTest(opcode=opcode, arguments=arguments):
                    self.assertEqual(connection.recv(1), b"")
            testing.wait_until(lambda: not daemon.workers(), "the workers have ended")

    def lying_server(self, daemon, opcode, change):
        """A port at which `change` alters the daemon's replies to the opcode, as bytes."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def pass_on(source, target):
            try:
                while data := source.recv(65536):
                    target.sendall(data)
            except OSError:
                pass
            target.close()

        def alter(source, target):
            try:
                while True:
                    header, body, bulk = testing.receive_frame(source)
                    body = bytearray(body)
                    if header[1] == opcode:
                        change(body)
                    target.sendall(testing.HEADER.pack(*header) + bytes(body) + bulk)
            except (EOFError, OSError):
                target.close()

        def serve():
            client, _ = listener.accept()
            server = daemon.connect()
            threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
            alter(server, client)

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    def test_a_server_that_lies_about_lengths(self):
        script = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, count = ctypes.c_void_p(), ctypes.c_uint(8)
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
name, room = ctypes.create_string_buffer(b"x" * 200), len("fargpu simulated GPU (sm_90)") + 1
result = nvml.nvmlDeviceGetName(device, name, room)
print(result, len(name.value) < room)
list_ = ctypes.create_string_buffer(8 * 24)
result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), list_)
print(result, count.value)
"""

        def lengthen(body):  # the text is the first item: its length, then its bytes
            (length,) = struct.unpack_from("<Q", body, 24)
            struct.pack_into("<Q", body, 24, length + 1)
            body[32 + length] = ord("X")

        def count(body):
            struct.pack_into("<Q", body, 24, 0xFFFFFFFF)

        for name, change, expected in (
            ("nvmlDeviceGetName", lengthen, ["0 True", "0 0"]),
            ("nvmlDeviceGetComputeRunningProcesses_v3", count, ["0 True", "999 0"]),
        ):
            with self.subTest(name), testing.Daemon(gpus=1) as daemon:
                port = self.lying_server(daemon, self.opcode(name), change)
                done = testing.run(
                    [sys.executable, "-c", script],
                    env=testing.clean_environment(
                        FARGPU_SERVER=f"127.0.0.1:{port}",
                        LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                    ),
                )
                self.assertEqual(done.stdout.splitlines(), expected, done.stderr)

    def test_a_device_that_is_not_the_jobs(self):
        word = struct.Struct("<Q").pack
        with testing.Daemon(gpus=2) as daemon:
            connection, _ = self.manage(daemon)
            temperature = self.opcode("nvmlDeviceGetTemperature")
            for place in (1, 2, (1 << 64) - 1):
                connection.sendall(
                    testing.frame(temperature, self.call(word(place) + word(0)), sequence=2)
                )
                header = testing.receive_frame(connection)[0]
                self.assertEqual(header[7], 2, "NVML_ERROR_INVALID_ARGUMENT")

    def test_calls_of_cuda_are_not_served(self):
        with testing.Daemon(gpus=1) as daemon:
            connection, _ = self.manage(daemon)
            connection.sendall(testing.frame(100, self.call(b""), sequence=2))
            self.assertEqual(testing.receive_frame(connection)[0][7], 13, "FUNCTION_NOT_FOUND")
            connection.sendall(testing.frame(testing.PING, sequence=3))
            self.assertEqual(testing.receive_frame(connection)[0][7], 0)


if __name__ == "__main__":
    testing.main()
