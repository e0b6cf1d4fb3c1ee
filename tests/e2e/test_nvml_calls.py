"""Every function of NVML, called rightly and wrongly: by the simulated library alone and through
fargpu, line by line. Codes are compared always, outputs where they never change."""

import json
import os
import re
import sys
import tempfile
import unittest

import fargpu_testing as testing
from nvml_job import PRELUDE, need_nvidia_ml_py
from proxied import Proxied

sys.path.insert(0, str(testing.ROOT / "schema"))
try:
    from apigen.nvml import describe
except ImportError:  # PyYAML and Jinja2 are what the build needs, too
    describe = None

# Of what is in a handle, or what the process has, the two differ.
NOT_ASKED = re.compile(r"nvmlInit|nvmlShutdown|Event|nvmlErrorString|GetHandleBy|ExportTable")
# Answered in the client, and otherwise than by a library without it.
OTHERWISE = {
    "nvmlDeviceSetCpuAffinity": "every processor is as near",
    "nvmlDeviceClearCpuAffinity": "every processor is as near",
    "nvmlSystemGetTopologyGpuSet": "every processor is as near",
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": "no handle is one of MIG",
    "nvmlDeviceGetSupportedGraphicsClocks": "NULL is looked at before the memory clock",
}
CALLER = """
import ctypes, hashlib, json, os, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
ROOM = 1 << 16
# A file in which the number of answers of the server stands.
counter = os.open(os.environ["COUNTER"], os.O_RDONLY) if "COUNTER" in os.environ else None
def answers():
    return int.from_bytes(os.pread(counter, 8, 0), "little")
for name, parameters, shown in json.loads(sys.stdin.read()):
    function = getattr(nvml, name)
    wrongs = [None] + [(i, wrong) for i, p in enumerate(parameters) for wrong in p["wrong"]]
    for wrong in wrongs:
        arguments, buffers = [], []
        for i, parameter in enumerate(parameters):
            kind, value = parameter["kind"], parameter["value"]
            if wrong is not None and wrong[0] == i:
                value = wrong[1]
            if kind == "device":
                arguments.append(device if value else ctypes.c_void_p())
            elif kind == "value":
                arguments.append(ctypes.c_uint64(value & (1 << 64) - 1))
            elif value is None:
                arguments.append(ctypes.c_void_p())
            else:
                buffer = ctypes.create_string_buffer(ROOM)
                given = value.encode() if isinstance(value, str) else value.to_bytes(8, "little")
                buffer[0 : len(given)] = given
                buffers.append(buffer)
                arguments.append(buffer)
        before = answers() if counter else 0
        code = function(*arguments)
        if counter:
            first = answers() - before
            function(*arguments)
            if wrong is None:
                print(name, first, answers() - before - first)
            continue
        outputs = [hashlib.sha256(b.raw).hexdigest()[:8] for b in buffers] if shown else []
        outputs = outputs if code == 0 else []
        print(name, "right" if wrong is None else wrong, code, *outputs, flush=True)
"""

TABLE = """
nvmlInit()
take_memory(1 << 20)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p(ctypes.cast(handles()[0], ctypes.c_void_p).value)
table = ctypes.POINTER(ctypes.c_size_t)()
id = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
found = [nvml.nvmlInternalGetExportTable(ctypes.byref(table), id), table[0]]
refused = [ctypes.CFUNCTYPE(ctypes.c_int)(table[word])() for word in (1, table[0] // 8 - 1)]
watched = ctypes.c_int(7)
can_be_watched = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(table[72])
found.append([can_be_watched(device, ctypes.addressof(watched)), watched.value])
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
def ask(word, room, given=True):
    count, list_ = ctypes.c_uint(room), ctypes.create_string_buffer(b"x" * 8256, 8256)
    code = kind(table[word])(device, ctypes.addressof(count), list_ if given else None)
    return code, count.value, list_.raw
listed = ask(213, 2)
words = list(memoryview(listed[2][:32]).cast("I"))
between = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
def connection(*names):
    answer = ctypes.c_int(7)
    return between(table[23])(*names, ctypes.addressof(answer)), answer.value
bus = [nvmlDeviceGetPciInfo(h).busId.encode() for h in handles()]
other = ctypes.c_void_p(1)
print(json.dumps({
    "between": [connection(*bus), connection(bus[0], b"0000:99:00.0"), connection(bus[0], None)],
    "found": found,
    "refused": refused,
    "listed": [listed[0], listed[1], words, listed[2][32:].split(b"\\0")[0].decode()],
    "me": [os.getpid(), nvmlSystemGetProcessName(os.getpid())],
    "untouched": listed[2][4128:] == b"x" * 4128,
    "counts": [ask(213, 0, False)[:2], ask(213, 5, False)[:2], ask(214, 2)[:2], ask(215, 2)[:2]],
    "wrong": [kind(table[word])(device, None, None) for word in (213, 214, 215)],
    "other": [nvml.nvmlInternalGetExportTable(ctypes.byref(other), bytes(16)), other.value],
}))
"""


def parameter(f, a):
    """How an argument is given: rightly, and what is tried instead."""
    if a.shape == "device":
        return {"kind": "device", "value": 1, "wrong": [0]}
    if a.shape in ("value", "opaque") and not a.ctype.endswith("*"):
        lengths = " ".join(b.length for b in f.arguments)
        if re.search(rf"\b{a.name}\b", lengths) or re.search("[lL]ength$|Size$", a.name):
            return {"kind": "value", "value": 96, "wrong": [0, 1]}
        return {"kind": "value", "value": 0, "wrong": [1, 0x7FFFFFFF]}
    if a.direction == "in" and a.shape == "cstr":
        return {"kind": "pointer", "value": "nothing", "wrong": [None]}
    if a.versions:
        return {"kind": "pointer", "value": version(a), "wrong": [None, 0]}
    # Counts of lists.
    value = 32 if a.direction == "inout" and a.shape == "value" else 0
    return {"kind": "pointer", "value": value, "wrong": [None]}


def specification(functions):
    """What CALLER reads."""
    return [[f.name, [parameter(f, a) for a in f.arguments], f.cache] for f in functions]


def version(a):
    """The last layout's version word; the sizes are those of the C types."""
    return SIZES[list(a.versions)[-1]] | list(a.versions.values())[-1] << 24


LAYOUTS = (testing.ROOT / "tests/nvml_abi/layout.cc").read_text()
SIZES = {t: int(size) for t, size in re.findall(r"^FARGPU_LAYOUT\((\w+), (\d+)", LAYOUTS, re.M)}


def setUpModule():
    if describe is None:
        raise unittest.SkipTest("apigen cannot be loaded")
    need_nvidia_ml_py()


class Asked(Proxied):
    maxDiff = None

    def ask(self, functions, run):
        done = run(sys.executable, "-c", CALLER, input=json.dumps(specification(functions)))
        self.assertEqual(done.returncode, 0, done.stdout[-500:] + done.stderr)
        return done.stdout.splitlines()


class RoundTrips(Asked):
    def test_one_at_most_and_none_for_what_never_changes(self):
        library = describe.load(testing.ROOT / "schema")
        asked = [f for f in library.functions if not NOT_ASKED.search(f.name)]
        count = 0
        with tempfile.NamedTemporaryFile() as file, testing.Daemon(gpus=3) as daemon:

            def one_more(_):
                nonlocal count
                count += 1
                os.pwrite(file.fileno(), count.to_bytes(8, "little"), 0)

            environment = testing.clean_environment(
                FARGPU_SERVER=f"127.0.0.1:{self.proxy(daemon, None, one_more)}",
                FARGPU_GPUS=3,
                LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                COUNTER=file.name,
            )
            lines = self.ask(asked, lambda *c, **o: testing.run(c, env=environment, **o))
        self.assertEqual(len(lines), len(asked))
        self.assertGreater(count, 150)
        cached = {f.name for f in asked if f.cache}
        for name, *costs in map(str.split, lines):
            first, second = map(int, costs)
            with self.subTest(name):
                self.assertLessEqual(first, 1)
                self.assertLessEqual(second, 0 if name in cached else 1)


class Calls(Asked):
    def test_as_by_the_library_alone(self):
        library = describe.load(testing.ROOT / "schema")
        answered = [f for f in library.functions if f.supported and not NOT_ASKED.search(f.name)]
        self.assertGreater(len(answered), 150)
        with testing.Daemon(gpus=1) as daemon:
            through = self.ask(answered, daemon.run)

        def alone(*command, **options):
            environment = testing.clean_environment(LD_LIBRARY_PATH=testing.BUILD.sim_libraries)
            return testing.run(command, env=environment, **options)

        direct = self.ask(answered, alone)
        self.assertGreater(len(direct), 500)
        # What the library refuses altogether it refuses before it looks at arguments.
        refused = {line.split()[0] for line in direct if line.endswith(" right 3")}
        for line in through:
            name, way, *rest = line.split()
            if name in refused - OTHERWISE.keys() and way == "right":
                self.assertEqual(rest, ["3"], name)
        differing = [
            f"{theirs} | {ours.removeprefix(theirs.split(' ')[0])}"
            for theirs, ours in zip(direct, through, strict=True)
            if theirs != ours and theirs.split()[0] not in refused | OTHERWISE.keys()
        ]
        self.assertEqual("\n".join(differing), "")

    def test_what_is_refused(self):
        library = describe.load(testing.ROOT / "schema")
        for call, code in (("denied", 4), ("unsupported", 3)):
            refused = [f for f in library.functions if f.call == call]
            self.assertGreater(len(refused), 10)
            with self.subTest(call), testing.Daemon(gpus=1) as daemon:
                lines = self.ask(refused, daemon.run)
                right = [line.split() for line in lines if line.split()[1] == "right"]
                self.assertEqual([line for line in right if line[2] != str(code)], [])

    def test_the_table_that_nvidia_smi_asks_for(self):
        with testing.Daemon(gpus=2) as daemon:
            done = daemon.run(sys.executable, "-c", PRELUDE + TABLE, flags=("--gpus", "2"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = json.loads(done.stdout)
        self.assertEqual(said["found"], [0, 4096, [0, 1]])
        self.assertEqual(said["refused"], [3, 3])
        # 3: within a node of memory, as nvmlDeviceGetTopologyCommonAncestor says.
        self.assertEqual(said["between"], [[0, 3], [6, 7], [2, 7]])
        code, count, words, name = said["listed"]
        pid, own_name = said["me"]
        self.assertEqual((code, count, name), (0, 1, own_name))
        none = (1 << 32) - 1
        self.assertEqual(words[:1] + words[2:], [pid, 1 << 20, 0, none, none, 0, 0])
        self.assertTrue(said["untouched"])
        self.assertEqual(said["counts"], [[7, 1], [7, 1], [0, 0], [0, 0]])
        self.assertEqual(said["wrong"], [2, 2, 2])
        self.assertEqual(said["other"], [6, None])


if __name__ == "__main__":
    testing.main()
