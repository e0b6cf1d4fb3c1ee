"""Every function of NVML, called rightly and wrongly: by the simulated library alone and through
fargpu, line by line. Codes are compared always, outputs where they never change."""

import json
import re
import sys
import unittest

import fargpu_testing as testing

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
import ctypes, hashlib, json, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
ROOM = 1 << 16
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
        code = function(*arguments)
        outputs = [hashlib.sha256(b.raw).hexdigest()[:8] for b in buffers] if shown else []
        print(name, "right" if wrong is None else wrong, code, *(outputs if code == 0 else []))
"""

TABLES = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
table = ctypes.POINTER(ctypes.c_size_t)()
id = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
print(nvml.nvmlInternalGetExportTable(ctypes.byref(table), id), table[0])
for word in (1, table[0] // 8 - 1):
    print(ctypes.CFUNCTYPE(ctypes.c_int)(table[word])())
ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
for word in (72, 213, 214, 215):
    answer = ctypes.c_int(7)
    print(ask(table[word])(None, ctypes.addressof(answer)), answer.value)
other = ctypes.c_void_p(1)
print(nvml.nvmlInternalGetExportTable(ctypes.byref(other), bytes(16)), other.value)
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


def version(a):
    """The last layout's version word; the sizes are those of the C types."""
    return SIZES[list(a.versions)[-1]] | list(a.versions.values())[-1] << 24


LAYOUTS = (testing.ROOT / "tests/nvml_abi/layout.cc").read_text()
SIZES = {t: int(size) for t, size in re.findall(r"^FARGPU_LAYOUT\((\w+), (\d+)", LAYOUTS, re.M)}


def setUpModule():
    if describe is None:
        raise unittest.SkipTest("apigen cannot be loaded")


class Calls(unittest.TestCase):
    maxDiff = None

    def ask(self, functions, run):
        spec = [[f.name, [parameter(f, a) for a in f.arguments], f.cache] for f in functions]
        done = run(sys.executable, "-c", CALLER, input=json.dumps(spec))
        self.assertEqual(done.returncode, 0, done.stdout[-500:] + done.stderr)
        return done.stdout.splitlines()

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
        with testing.Daemon(gpus=1) as daemon:
            done = daemon.run(sys.executable, "-c", TABLES)
        self.assertEqual(
            done.stdout.split(), "0 4096 3 3 0 1 0 0 0 0 0 0 6 None".split(), done.stderr
        )


if __name__ == "__main__":
    testing.main()
