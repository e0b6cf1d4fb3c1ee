"""Servers with drivers 535, 550, 570 and 580, and GPUs of several capabilities: a program finds
through fargpu what it finds on the driver itself."""

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


if __name__ == "__main__":
    testing.main()
