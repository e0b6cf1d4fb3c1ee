"""What the tests of NVML share: programs that use nvidia-ml-py, and a job that runs them."""

import contextlib
import json
import socket
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


class Proxied(unittest.TestCase):
    """Programs that reach their daemon through a port at which frames are counted or altered."""

    def setUp(self):
        if testing.tls_certificates():
            self.skipTest("the frames are sent in the clear")

    def proxy(self, daemon, opcode, change, sent=None):
        """A port at which `change` alters the daemon's replies to the opcode (None: to calls), as
        bytes, and keeps those back that it returns False for. `sent`: gets what the client
        sends."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def pass_on(source, target):
            try:
                while data := source.recv(65536):
                    if sent is not None:
                        sent.extend(data)
                    target.sendall(data)
            except OSError:
                pass
            end(target)
            source.close()

        def end(connection):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        def alter(source, target):
            try:
                while True:
                    header, body, bulk = testing.receive_frame(source)
                    body = bytearray(body)
                    altered = header[1] >= 4096 if opcode is None else header[1] == opcode
                    if altered and change(body) is False:
                        continue
                    target.sendall(testing.HEADER.pack(*header) + bytes(body) + bulk)
            except (EOFError, OSError):
                end(target)
            source.close()

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                server = daemon.connect()
                threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=alter, args=(server, client), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]
