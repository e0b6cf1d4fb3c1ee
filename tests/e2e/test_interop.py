"""What NVIDIA's libraries ask of the driver beyond its documented functions."""

import json
import os
import pathlib
import sys
import unittest

import fargpu_testing as testing

# What a profiler does with CUPTI, before or after cuInit; then what the program itself does.
PROFILED = """
import ctypes, sys
cuda, cupti = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
def begin():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
if sys.argv[2] == "after":
    begin()
subscriber, number, memory = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
callback = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(lambda *_: None)
requested = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(lambda *_: None)
completed = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)(lambda *_: None)
for name, *arguments in (
    ("cuptiSubscribe", ctypes.byref(subscriber), callback, None),
    ("cuptiActivityRegisterCallbacks", requested, completed),
    ("cuptiActivityEnable", 10),
    ("cuptiActivityEnable", 3),
    ("cuptiActivityFlushAll", 0),
    ("cuptiActivityDisable", 3),
):
    print(name, getattr(cupti, name)(*arguments) != 0)
cupti.cuptiGetTimestamp(ctypes.byref(number))
cupti.cuptiFinalize()
if sys.argv[2] == "before":
    begin()
print(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)), cuda.cuCtxSynchronize())
"""
CUPTI_TABLES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
for name in ("2c8e0ad80710ab4e90dd54719fe5f74b", "7cb63f9b9ca48e42a484beb66e6aed7f"):
    for _ in range(2):
        table = ctypes.POINTER(ctypes.c_size_t)()
        print(cuda.cuGetExportTable(ctypes.byref(table), bytes.fromhex(name)), bool(table))
print(table[0], {ctypes.CFUNCTYPE(ctypes.c_int)(table[slot])() for slot in range(1, table[0] // 8)})
"""


class ExportTables(unittest.TestCase):
    def test_functions_of_a_module_and_no_compilation_cache(self):
        with testing.Daemon() as daemon:
            done = daemon.run(
                testing.BUILD.program("export_tables"), testing.BUILD.program("triple.ptx")
            )
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "function enumeration: 99 words",
                "function triple",
                "1 functions, 1 told of",
                "compilation cache: 801",
            ],
            done.stderr,
        )
        self.assertEqual(done.stderr, "")  # that there is no cache is not worth a line

    def check_library(self, name, *daemon_arguments):
        """A program of tests/apps, which checks itself."""
        if not (testing.BUILD.programs / name).exists():
            self.skipTest("the toolkit that this was built with lacks the library")
        with testing.Daemon(*daemon_arguments) as daemon:
            done = daemon.run(testing.BUILD.program(name))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])["values"]

    def test_transforms_by_cufft(self):
        self.assertEqual(len(self.check_library("cufft_transforms")), 2)

    def test_a_sum_by_nccl(self):
        # NCCL has PTX for no older one.
        (total,) = self.check_library("nccl_all_reduce", "--sim-compute-capability", "12.0")
        self.assertGreater(total, 0)

    def test_profilers_are_refused_in_one_line(self):
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", CUPTI_TABLES)
        self.assertEqual(
            done.stdout.splitlines(), ["1 False"] * 2 + ["0 True"] * 2 + ["512 {801}"], done.stderr
        )
        (line,) = done.stderr.splitlines()
        self.assertIn("CUPTI needs the GPU's driver", line)
        self.assertIn("FARGPU_TRACE", line)

    def test_cupti(self):
        """NVIDIA's library, wherever FARGPU_CUPTI (paths, separated by colons) has some."""
        libraries = [path for path in os.environ.get("FARGPU_CUPTI", "").split(":") if path]
        if not libraries:
            self.skipTest("FARGPU_CUPTI is not set")
        for library in map(pathlib.Path, libraries):
            for when in ("before", "after"):
                with self.subTest(library=library, when=when), testing.Daemon() as daemon:
                    done = daemon.run(sys.executable, "-c", PROFILED, library, when)
                    *said, last = done.stdout.splitlines() or [""]
                    self.assertEqual(last, "0 0", done.stderr)
                    self.assertEqual({line.split()[1] for line in said}, {"True"})
                    (line,) = done.stderr.splitlines()
                    self.assertIn("CUPTI needs the GPU's driver", line)

    def test_video_codecs_cannot_be_loaded(self):
        """NVIDIA's library on the client machine waits for a GPU there. Here it is a file of that
        name, which ends the search for others."""
        script = "import ctypes; ctypes.CDLL('libnvcuvid.so.1')"
        with testing.Daemon() as daemon:
            done = daemon.run(sys.executable, "-c", script)
        self.assertEqual(done.returncode, 1)
        self.assertIn("symbol: fargpu_does_not_forward_video_codecs", done.stderr)


if __name__ == "__main__":
    testing.main()
