"""What the tests of NVML share: programs that use nvidia-ml-py, and a job that runs them."""

import json
import sys
import unittest

import fargpu_testing as testing

PYTHON = str(testing.ROOT / ".deps" / "python")
sys.path.append(PYTHON)
try:
    import pynvml
except ImportError:
    pynvml = None

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


def need_nvidia_ml_py():
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
