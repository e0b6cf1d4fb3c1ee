"""Servers with drivers 535, 550, 570 and 580, and GPUs of several capabilities: a program finds
through fargpu what it finds on the driver itself."""

import re
import sys
import unittest

import fargpu_testing as testing

# CUDA version of the driver (None: today's), capability of the GPU.
PROFILES = (("12.2", "7.5"), ("12.4", "8.0"), ("12.8", "8.9"), (None, "9.0"))


def library(version):
    folder = testing.BUILD.folder / "lib"
    return folder / (f"libfargpu-sim-{version}.so" if version else "libfargpu-sim.so")


class Drivers(unittest.TestCase):
    def direct(self, version, capability):
        name = f"sim-direct-{version}" if version else "sim-direct"
        folder = testing.BUILD.folder / "lib" / name
        environment = testing.clean_environment(
            LD_LIBRARY_PATH=folder, FARGPU_SIM_COMPUTE_CAPABILITY=capability
        )
        done = testing.run([testing.BUILD.program("driver_versions")], env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_the_same_is_found(self):
        for version, capability in PROFILES:
            expected = self.direct(version, capability)
            major, minor = capability.split(".")
            self.assertIn(f"attribute 75 is {major}\nattribute 76 is {minor}\n", expected)
            number = version.replace(".", "0") + "0" if version else "13000"
            self.assertIn(f"version {number}\n", expected)
            with testing.Daemon(
                "--sim-compute-capability", capability, driver=library(version)
            ) as daemon:
                for transport in ("shm", "tcp"):
                    with self.subTest(version=version, capability=capability, transport=transport):
                        done = daemon.run(
                            testing.BUILD.program("driver_versions"),
                            flags=("--transport", transport),
                        )
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                        self.assertEqual(done.stdout, expected)

    def test_parameters_of_kernels(self):
        """Drivers before 12.4 do not tell them."""
        for version in ("12.2", "12.4"):
            with testing.Daemon(driver=library(version)) as daemon:
                for image in ("triple.fatbin", "triple.ptx"):
                    with self.subTest(version=version, image=image):
                        done = daemon.run(
                            testing.BUILD.program("driver_fatbin"), testing.BUILD.program(image)
                        )
                        self.assertEqual(done.stdout, "driver_fatbin: right\n", done.stderr)

    def test_what_the_driver_lacks(self):
        self.assertIn("cuGreenCtxCreate of 12020: error 0, absent", self.direct("12.2", "7.5"))
        self.assertIn("device resources: absent", self.direct("12.2", "7.5"))
        self.assertIn("cuGreenCtxCreate of 12040: error 0, there", self.direct("12.4", "8.0"))
        self.assertIn("at least 4, by 2", self.direct("12.4", "8.0"))
        self.assertIn("at least 8, by 8", self.direct(None, "9.0"))


class Instances(unittest.TestCase):
    """A GPU that is divided (MIG): CUDA shows a process one instance, by its own UUID."""

    PROGRAM = """
import ctypes, os
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
count, multiprocessors, free, total = (ctypes.c_size_t() for _ in range(4))
name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
context, handle = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and nvml.nvmlInit_v2() == 0
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuDeviceGetName(name, 96, 0) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(multiprocessors), 16, 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
assert nvml.nvmlDeviceGetUUID(handle, uuid, 96) == 0
print(count.value, name.value.decode(), multiprocessors.value, total.value >> 20,
      uuid.value.decode())
"""

    def lent(self, **environment):
        """What a job sees of a server whose two GPUs have four instances each."""
        server = {"FARGPU_SIM_MIG": 4, "FARGPU_SIM_MEMORY": "8G"} | environment
        with testing.Daemon(gpus=2, environment=server) as daemon:
            devices = testing.run([testing.BUILD.fargpu, "devices", "--server", daemon.server])
            self.assertEqual(devices.returncode, 0, devices.stderr)
            seen = []
            for more in ({}, {"CUDA_VISIBLE_DEVICES": self.uuid(devices.stdout)}):
                done = daemon.run(
                    sys.executable, "-c", self.PROGRAM, env=testing.clean_environment(**more)
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                seen.append(done.stdout)
            self.assertEqual(*seen)
            self.assertIn(self.uuid(seen[0]), devices.stdout)
            done = daemon.run(testing.BUILD.program("vector_add"))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            more = daemon.run(sys.executable, "-c", self.PROGRAM, flags=("--gpus", "2"))
            self.assertNotEqual(more.returncode, 0)
            return seen[0]

    @staticmethod
    def uuid(text):
        return re.search(r"MIG-[0-9a-f-]+", text)[0]

    def test_the_first_one(self):
        self.assertEqual(
            self.lent(),
            "1 fargpu simulated GPU (sm_90) MIG 1g.2gb 4 2048 "
            "MIG-66617267-7075-2d73-696d-000000015a00\n",
        )

    def test_another_one(self):
        other = "MIG-66617267-7075-2d73-696d-000000045a01"
        self.assertIn(f" 2048 {other}\n", self.lent(CUDA_VISIBLE_DEVICES=other))


if __name__ == "__main__":
    testing.main()
