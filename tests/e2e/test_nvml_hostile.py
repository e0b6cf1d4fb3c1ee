"""Management sessions whose other end breaks the rules: a client that does loses its session, and
nothing else; a server that does cannot hurt the program."""

import json
import random
import struct
import sys

import fargpu_testing as testing
from nvml_job import PRELUDE, need_nvidia_ml_py, pynvml
from proxied import Proxied

MANAGE = 19


def setUpModule():
    need_nvidia_ml_py()


class Hostile(Proxied):
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
                port = self.proxy(daemon, self.opcode(name), change)
                done = testing.run(
                    [sys.executable, "-c", script],
                    env=testing.clean_environment(
                        FARGPU_SERVER=f"127.0.0.1:{port}",
                        LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                    ),
                )
                self.assertEqual(done.stdout.splitlines(), expected, done.stderr)

    def ask_through(self, port, script, **environment):
        done = testing.run(
            [sys.executable, "-c", PRELUDE + script],
            env=testing.clean_environment(
                FARGPU_SERVER=f"127.0.0.1:{port}",
                LD_LIBRARY_PATH=testing.BUILD.client_libraries,
                **environment,
            ),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_texts_and_counts_in_structs(self):
        script = """
nvmlInit()
pci, thermal = nvmlPciInfo_t(), c_nvmlGpuThermalSettings_t()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p(ctypes.cast(handles()[0], ctypes.c_void_p).value)
print(json.dumps([
    nvml.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(pci)), len(pci.busId), len(pci.busIdLegacy),
    nvml.nvmlDeviceGetThermalSettings(device, 0, ctypes.byref(thermal)), thermal.count,
]))
"""

        def fill(body):
            body[32:] = b"x" * (len(body) - 32)

        for name, expected in (
            ("nvmlDeviceGetPciInfo_v3", [0, 31, 15, 0, 1]),
            ("nvmlDeviceGetThermalSettings", [0, 16, 12, 0, 3]),
        ):
            with self.subTest(name), testing.Daemon(gpus=1) as daemon:
                port = self.proxy(daemon, self.opcode(name), fill)
                self.assertEqual(self.ask_through(port, script)[0], expected)

    def test_damaged_answers(self):
        """Whatever one bit of an answer does, nothing is written beyond the caller's room."""
        script = """
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
def versioned(size, number):
    return (size | number << 24).to_bytes(4, "little")
calls = [  # the function, what comes before the buffer, the room, how it begins, what comes behind
    ("nvmlDeviceGetName", (), 40, b"", (40,)),
    ("nvmlDeviceGetPciInfo_v3", (), 68, b"", ()),
    ("nvmlDeviceGetMemoryInfo_v2", (), 40, versioned(40, 2), ()),
    ("nvmlDeviceGetThermalSettings", (0,), 64, b"", ()),
    ("nvmlDeviceGetFieldValues", (2,), 80, (82).to_bytes(4, "little"), ()),
    ("nvmlDeviceGetSupportedMemoryClocks", (ctypes.c_uint(4),), 16, b"", ()),
    ("nvmlDeviceGetComputeRunningProcesses_v3", (ctypes.c_uint(4),), 96, b"", ()),
    ("nvmlDeviceGetTemperature", (0,), 4, b"", ()),
]
codes = {}
for round in range(120):
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
        sys.exit("no session")
    first = round % len(calls)
    for name, before, room, begin, behind in calls[first:] + calls[:first]:
        buffer = ctypes.create_string_buffer(b"\\xee" * 4096, 4096)
        buffer[0:len(begin)] = begin
        before = [ctypes.byref(type(b)(b.value)) if hasattr(b, "value") else b for b in before]
        code = getattr(nvml, name)(device, *before, buffer, *behind)
        codes[code] = codes.get(code, 0) + 1
        if buffer.raw[room:] != b"\\xee" * (4096 - room):
            sys.exit(name + " wrote beyond its room")
    nvml.nvmlShutdown()
print(json.dumps(codes))
"""
        random_bits = random.Random(7)

        def damage(body):
            # Behind the segment table of the message.
            bit = random_bits.randrange(8 * 8, len(body) * 8)
            body[bit // 8] ^= 1 << bit % 8

        with testing.Daemon(gpus=1) as daemon:
            port = self.proxy(daemon, None, damage)
            found, _ = self.ask_through(port, script)
        # Some answers are right but for a value, some end the session.
        self.assertGreater(found["0"], 50)
        self.assertGreater(found["15"] + found["999"], 50)

    def test_what_the_caller_has_not_set_is_not_sent(self):
        script = """
nvmlInit()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p(ctypes.cast(handles()[0], ctypes.c_void_p).value)
def ask(call, size, number, inputs=b""):
    place = ctypes.create_string_buffer(b"\\xa5" * size, size)
    place[0:4 + len(inputs)] = (size | number << 24).to_bytes(4, "little") + inputs
    return call(device, place)
field = ctypes.create_string_buffer(b"\\xa5" * 40, 40)
field[0:8] = (82).to_bytes(4, "little") + bytes(4)
print(json.dumps([
    ask(nvml.nvmlDeviceGetMemoryInfo_v2, 40, 2),
    ask(nvml.nvmlDeviceGetPciInfoExt, 64, 1),
    ask(nvml.nvmlDeviceGetTemperatureV, 12, 1, bytes(4)),
    nvml.nvmlDeviceGetFieldValues(device, 1, field),
]))
"""
        sent = bytearray()
        with testing.Daemon(gpus=1) as daemon:
            port = self.proxy(daemon, 0, None, sent)
            self.assertEqual(self.ask_through(port, script)[0], [0, 0, 0, 0])
        self.assertGreater(len(sent), 1000)
        self.assertNotIn(b"\xa5" * 4, sent)

    def test_a_server_that_answers_only_pings(self):
        name = "nvmlDeviceGetTemperature"
        with testing.Daemon(gpus=1) as daemon:
            port = self.proxy(daemon, self.opcode(name), lambda body: False)
            found, errors = self.ask_through(
                port,
                """
nvmlInit()
start = time.monotonic()
first = error(nvmlDeviceGetTemperature, handles()[0], 0)
print(json.dumps([first, error(nvmlDeviceGetUtilizationRates, handles()[0]),
                  time.monotonic() - start]))
""",
                FARGPU_CONNECT_TIMEOUT="500ms",
            )
        self.assertEqual(found[:2], [pynvml.NVML_ERROR_GPU_IS_LOST] * 2)
        self.assertTrue(15 < found[2] < 25, found)
        self.assertIn(f"has not answered {name}", errors)

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
