"""NVML of a program's job, by nvidia-ml-py: only the job's GPUs and memory, its processes, several
servers, fork, the end of a daemon."""

import json
import os
import subprocess
import sys
import time
import unittest

import fargpu_testing as testing
from nvml_job import LIMIT, PRELUDE, Job, need_nvidia_ml_py, pynvml


def setUpModule():
    need_nvidia_ml_py()


# Of two GPUs with 64 MiB each.
PAGE = """\
+-----------------------------------------------------------------------------------------+
| FARGPU-SMI {version}   Driver Version: 580.0.0        CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  fargpu simulated GPU (sm...    On  |   00000000:10:00.0 Off |                    0 |
| N/A   34C    P0             76W /  700W |       4MiB /     64MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  fargpu simulated GPU (sm...    On  |   00000000:11:00.0 Off |                    0 |
| N/A   34C    P0             76W /  700W |      11MiB /     64MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{processes}
+-----------------------------------------------------------------------------------------+"""


class OfOneServer(Job):
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

    def test_a_length_beyond_the_struct(self):
        found, _ = self.ask(
            """
nvmlInit()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
info = ctypes.create_string_buffer(84)
info[0:4] = (84 | 1 << 24).to_bytes(4, "little")
result = nvml.nvmlSystemGetDriverBranch(info, 1 << 20)
print(json.dumps([result, info.raw[4:].decode().rstrip("\\0"),
                  error(nvmlDeviceGetTemperature, handles()[0], 0)]))
"""
        )
        self.assertEqual(found, [0, "r580_00", 0])

    def test_what_the_job_has_no_share_in(self):
        found, _ = self.ask("""
nvmlInit()
h = handles()[0]
bar1 = nvmlDeviceGetBAR1MemoryInfo(h)
sizes = nvmlDeviceGetConfComputeMemSizeInfo(h)
guarded = nvmlDeviceGetConfComputeProtectedMemoryUsage(h)
print(json.dumps({
    "bar1": [bar1.bar1Used, bar1.bar1Total - bar1.bar1Free],
    "encoder": nvmlDeviceGetEncoderStats(h),
    "capture": nvmlDeviceGetFBCStats(h).sessionsCount,
    "sizes": [sizes.protectedMemSizeKib, sizes.unprotectedMemSizeKib],
    "guarded": guarded.total,
}))
""")
        self.assertEqual(found["bar1"], [0, 0])
        self.assertEqual(found["encoder"], [0, 0, 0])
        self.assertEqual(found["capture"], 0)
        self.assertLessEqual(max(found["sizes"]), LIMIT >> 10)
        self.assertLessEqual(found["guarded"], LIMIT)

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

    def test_lists_of_devices(self):
        """Without room they say how many there are; else they give as many as there is room for."""
        found, _ = self.ask(
            """
nvmlInit()
all = handles()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
first = ctypes.c_void_p(ctypes.cast(all[0], ctypes.c_void_p).value)
def nearest(level, room, given=True):
    count, list_ = ctypes.c_uint(room), (ctypes.c_void_p * 4)(7, 7, 7, 7)
    code = nvml.nvmlDeviceGetTopologyNearestGpus(
        first, level, ctypes.byref(count), list_ if given else None)
    return [code, count.value, sum(item != 7 for item in list_)]
def of_processor(number, room, given=True):
    count, list_ = ctypes.c_uint(room), (ctypes.c_void_p * 4)(7, 7, 7, 7)
    code = nvml.nvmlSystemGetTopologyGpuSet(
        number, ctypes.byref(count), list_ if given else None)
    return [code, count.value, sum(item != 7 for item in list_)]
print(json.dumps({
    "by_pynvml": [nvmlDeviceGetIndex(h) for h in nvmlDeviceGetTopologyNearestGpus(all[0], 40)],
    "nearest": [nearest(40, 0, False), nearest(40, 1), nearest(40, 4), nearest(30, 0),
                nearest(40, 1, False), nearest(35, 0)],
    "set": [of_processor(0, 0, False), of_processor(0, 1), of_processor(0, 4),
            of_processor(0, 4, False), of_processor(1 << 20, 0)],
}))
""",
            flags=("--gpus", "3", "--memory", "64M"),
        )
        self.assertEqual(found["by_pynvml"], [1, 2])
        self.assertEqual(
            found["nearest"],
            [[0, 2, 0], [0, 1, 1], [0, 2, 2], [0, 0, 0], [2, 1, 0], [2, 0, 0]],
        )
        self.assertEqual(found["set"], [[0, 3, 0], [0, 1, 1], [0, 3, 3], [2, 4, 0], [2, 0, 0]])

    def test_processes_asked_for_wrongly(self):
        found, _ = self.ask("""
nvmlInit()
take_memory(1 << 20)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p(ctypes.cast(handles()[0], ctypes.c_void_p).value)
codes = []
for kind in ("Compute", "Graphics", "MPSCompute"):
    for version in ("", "_v2", "_v3"):
        ask = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}")
        count = ctypes.c_uint(0)
        code = [ask(device, ctypes.byref(count), None), count.value]
        code.append(ask(device, ctypes.byref(ctypes.c_uint(5)), None))
        code.append(ask(device, None, None))
        codes.append(code)
details = []
for mode, version in ((0, 24 | 1 << 24), (1, 24 | 1 << 24), (3, 24 | 1 << 24), (0, 24)):
    words = (ctypes.c_uint * 6)(version, mode, 0, 0, 0, 0)
    details.append([nvml.nvmlDeviceGetRunningProcessDetailList(device, words), words[2]])
print(json.dumps([codes, details]))
""")
        too_small = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        wrong = pynvml.NVML_ERROR_INVALID_ARGUMENT
        self.assertEqual(found[0], [[too_small, 1, wrong, wrong]] * 3 + [[0, 0, wrong, wrong]] * 6)
        mismatch = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        self.assertEqual(found[1], [[too_small, 1], [0, 0], [wrong, 0], [mismatch, 0]])

    def test_visible_devices_are_cudas_affair(self):
        """Whatever CUDA is told to see, NVML shows the job, and says which device CUDA means."""
        script = """
nvmlInit()
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = cuda.cuInit(0)
uuids = []
if code == 0:
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
for i in range(count.value):
    uuid = (ctypes.c_ubyte * 16)()
    assert cuda.cuDeviceGetUuid_v2(uuid, i) == 0
    text = bytes(uuid).hex()
    uuids.append("GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
print(json.dumps([
    nvmlDeviceGetCount(),
    [nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids],
    [nvmlDeviceGetUUID(h) for h in handles()],
    error(nvmlDeviceGetHandleByUUID, "MIG-" + nvmlDeviceGetUUID(handles()[0])[4:]),
]))
"""
        _, _, uuids, _ = self.ask(script)[0]
        self.assertEqual(len(set(uuids)), 2)
        for visible, seen in (
            (None, [0, 1]),
            ("1", [1]),
            ("1,0", [1, 0]),
            (uuids[1], [1]),
            (f"{uuids[1]},0", [1, 0]),
            ("0,0", []),
            ("-1", []),
            ("0,-1,1", [0]),
            ("", []),
            ("MIG-" + uuids[0][4:], []),
        ):
            with self.subTest(visible):
                end = time.monotonic() + 60
                found = self.ask(script, CUDA_VISIBLE_DEVICES=visible)[0]
                # Other GPUs, while a worker of the program before still ends.
                while found[2] != uuids and time.monotonic() < end:
                    found = self.ask(script, CUDA_VISIBLE_DEVICES=visible)[0]
                self.assertEqual(found, [2, seen, uuids, pynvml.NVML_ERROR_NOT_FOUND])

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
        ps = [testing.BUILD.fargpu, "ps", "--server", self.daemon.server]
        # Until its worker has told the daemon, it is listed as one that starts.
        testing.wait_until(lambda: "management" in testing.run(ps).stdout, "ps says what it is")

    def test_smi(self):
        """Its page is laid out as that of nvidia-smi 580, with several GPUs and processes."""
        found, _ = self.ask(
            f"""
import subprocess
take_memory(8 << 20, 1)
child = os.fork()
if child == 0:
    os.execvp(sys.executable, [sys.executable, "-c", PRELUDE + '''
take_memory(4 << 20, 0)
take_memory(3 << 20, 1)
signal.pause()
'''])
nvmlInit()
while len(nvmlDeviceGetComputeRunningProcesses(handles()[1])) < 2:
    time.sleep(0.02)
def smi(*arguments):
    return subprocess.run([{str(testing.BUILD.fargpu)!r}, "smi", *arguments],
                          capture_output=True, text=True).stdout
print(json.dumps([os.getpid(), child, smi(), smi("-L")]))
os.kill(child, signal.SIGKILL)
""".replace("PRELUDE", repr(PRELUDE))
        )
        pid, child, page, listed = found
        lines = page.splitlines()
        time.strptime(lines[0].rstrip(), "%a %b %d %H:%M:%S %Y")
        self.assertEqual({len(line) for line in lines[1:] if line}, {91}, page)
        name = sys.executable if len(sys.executable) <= 32 else "..." + sys.executable[-29:]
        processes = "\n".join(
            f"| {gpu:>4}   N/A  N/A{number:>16}      C   {name:<32}{size:>11}MiB |"
            for gpu, number, size in ((0, child, 4), (1, pid, 8), (1, child, 3))
        )
        version = lines[2][13:33]
        self.assertEqual("\n".join(lines[1:]), PAGE.format(version=version, processes=processes))
        self.assertRegex(listed, r"\AGPU 0: .+ \(UUID: GPU-\S+\)\nGPU 1: .+ \(UUID: GPU-\S+\)\n\Z")

    def test_smi_by_itself(self):
        done = testing.run([testing.BUILD.fargpu, "smi", "--server", self.daemon.server, "-L"])
        self.assertEqual((done.returncode, done.stdout.count("GPU-")), (0, 1), done.stderr)
        done = testing.run([testing.BUILD.fargpu, "smi", "--server", "127.0.0.1:1"])
        self.assertEqual((done.returncode, done.stdout), (69, ""))
        self.assertIn("127.0.0.1:1", done.stderr)

    def test_a_program_with_an_rpath_to_another_library(self):
        program = testing.BUILD.program("nvml_by_rpath")
        environment = {"FARGPU_SIM_GPUS": "3"}
        alone = testing.run([program], env=testing.clean_environment(**environment))
        self.assertTrue(alone.stdout.startswith("3 "), alone.stdout + alone.stderr)
        for flags in ((), ("--preload", "always")):
            done = self.daemon.run(program, flags=flags)
            devices, path = done.stdout.split()
            self.assertEqual(devices, "1", done.stderr)
            self.assertTrue(os.path.samefile(os.path.dirname(path), testing.BUILD.client_libraries))
        # Others do not load it: a program that does not use NVML does not see it.
        maps = self.daemon.run(sys.executable, "-c", "print(open('/proc/self/maps').read())")
        self.assertNotIn("nvidia-ml", maps.stdout)

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
    "nearest": [[nvmlDeviceGetIndex(h) for h in nvmlDeviceGetTopologyNearestGpus(one, level)]
                for one in all for level in (40, 50)],
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
            self.assertEqual(found["nearest"], [[], [1], [], [0]])

    def test_one_is_lost_beside_threads_and_forks(self):
        """Calls about its GPU say so from then on, in each thread; the other one's go on, also in
        children, which have sessions of their own."""
        script = """
import threading
nvmlInit()
all = handles()
stop = threading.Event()
seen = [set(), set()]
def look(i):
    while not stop.is_set():
        seen[i].add(error(nvmlDeviceGetUtilizationRates, all[i]))
        seen[i].add(error(nvmlDeviceGetMemoryInfo, all[i]))
threads = [threading.Thread(target=look, args=(i,)) for i in (0, 1) * 3]
for thread in threads:
    thread.start()
def child():
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os._exit(error(nvmlDeviceGetUtilizationRates, all[0]))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
children = [child() for _ in range(5)]
print("ready", flush=True)
sys.stdin.readline()
until = time.monotonic() + 60
while error(nvmlDeviceGetUtilizationRates, all[1]) == 0 and time.monotonic() < until:
    time.sleep(0.01)
after = [error(nvmlDeviceGetUtilizationRates, h) for h in all]
seen[1].clear()
time.sleep(0.2)
stop.set()
for thread in threads:
    thread.join()
print(json.dumps([children, after, sorted(seen[0]), sorted(seen[1]), nvmlDeviceGetCount()]))
"""
        with testing.Daemon() as a, testing.Daemon() as b:
            program = subprocess.Popen(
                [testing.BUILD.fargpu, "run", "--server", f"{a.server},{b.server}", "--"]
                + [sys.executable, "-c", PRELUDE + script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=testing.clean_environment(),
            )
            self.addCleanup(program.kill)
            self.assertEqual(program.stdout.readline(), "ready\n")
            for worker in b.workers():
                os.kill(worker, 9)
            out, errors = program.communicate("go\n", timeout=testing.LIMIT)
        lost = pynvml.NVML_ERROR_GPU_IS_LOST
        self.assertEqual(json.loads(out), [[0] * 5, [0, lost], [0], [lost], 2], errors)
        self.assertEqual(errors.count("is lost"), 1, errors)


class NvmlPlaces(unittest.TestCase):
    """More clients than there are management sessions."""

    SCRIPT = """
nvmlInit()
print("ready", flush=True)
for line in sys.stdin:
    if line == "again\\n":
        nvmlShutdown()
        nvmlInit()
    print(error(nvmlDeviceGetUtilizationRates, handles()[0]), flush=True)
"""

    def start(self, daemon):
        program = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + self.SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=testing.clean_environment(
                FARGPU_SERVER=daemon.server, LD_LIBRARY_PATH=testing.BUILD.client_libraries
            ),
        )
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        return program

    def ask(self, program, what="call"):
        program.stdin.write(what + "\n")
        program.stdin.flush()
        return int(program.stdout.readline())

    def test_the_one_without_calls_gives_way(self):
        with testing.Daemon("--max-sessions", 2, "--silent-worker", "800ms") as daemon:
            busy, idle = self.start(daemon), self.start(daemon)
            time.sleep(0.5)
            self.assertEqual(self.ask(busy), 0)
            time.sleep(0.5)
            third = self.start(daemon)
            testing.wait_until(lambda: len(daemon.workers()) == 2, "one has gone")
            self.assertEqual(self.ask(busy), 0)
            self.assertEqual(self.ask(third), 0)
            self.assertEqual(self.ask(idle), pynvml.NVML_ERROR_GPU_IS_LOST)
            self.assertEqual(self.ask(idle, "again"), 0)
            self.assertEqual(daemon.log_text().count("limit=max-sessions"), 2)


class NvmlThatHangs(unittest.TestCase):
    """The server's NVML does not return, as with a GPU that hangs: a worker does not keep its place
    when its client has gone."""

    def daemon(self, call):
        return testing.Daemon("--max-sessions", 1, environment={"FARGPU_SIM_NVML_HANG": call})

    def hang_in(self, call, script):
        with self.daemon(call) as daemon:
            # Without `fargpu run`, whose end would tell the daemon.
            program = subprocess.Popen(
                [sys.executable, "-c", PRELUDE + script],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=testing.clean_environment(
                    FARGPU_SERVER=daemon.server,
                    LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                ),
            )
            self.addCleanup(program.communicate)
            self.addCleanup(program.kill)
            if call != "init":
                self.assertEqual(program.stdout.readline(), "ready\n")
            (worker,) = testing.wait_until(daemon.workers, "a worker has begun")
            time.sleep(1)  # by now it is inside the call
            self.assertTrue(testing.is_running(worker))
            program.kill()
            testing.wait_until(lambda: not daemon.workers(), "the worker has ended", seconds=20)
            self.assertIn("a call of NVML did not return", daemon.log_text())
            if call != "init":
                again = daemon.run(sys.executable, "-c", PRELUDE + "print(error(nvmlInit))")
                self.assertEqual(again.stdout, "0\n", again.stderr)

    def test_in_a_call(self):
        self.hang_in(
            "utilization",
            'nvmlInit(); print("ready", flush=True); nvmlDeviceGetUtilizationRates(handles()[0])',
        )

    def test_at_the_beginning(self):
        self.hang_in("init", "nvmlInit()")

    def test_a_client_that_gives_up(self):
        """It stays, but has waited long enough."""
        with self.daemon("utilization") as daemon:
            script = """
nvmlInit()
codes = [error(nvmlDeviceGetUtilizationRates, handles()[0])]
nvmlShutdown()
until = time.monotonic() + 20
while (code := error(nvmlInit)) and time.monotonic() < until:
    time.sleep(0.1)
print(json.dumps(codes + [code]))
"""
            done = daemon.run(
                sys.executable,
                "-c",
                PRELUDE + script,
                env=testing.clean_environment(FARGPU_CONNECT_TIMEOUT="500ms"),
            )
        self.assertEqual(json.loads(done.stdout), [pynvml.NVML_ERROR_GPU_IS_LOST, 0], done.stderr)


if __name__ == "__main__":
    testing.main()
