"""Unmodified programs through one daemon with two simulated GPUs: each checks its own results; here
exit code and output are checked."""

import json
import os
import re
import unittest

import fargpu_testing as testing

EXAMPLES = [
    "vector_add",
    "matmul_tiled",
    "reduction",
    "histogram",
    "scan",
    "streams_events",
    "two_gpus",
    "constant_symbols",
    "dynamic_shared",
    "divergent",
    "pitched_copies",
]
OTHERS = [
    "pageable_overwrite",
    "many_threads",
    "per_thread_streams",
    "callbacks",
    "fork_child",
    "kernel_fault",
    "copies",
    "large_copy",
    "held_launches",
    "pinned_copies",
    "device_reset",
    "graphs_of_frameworks",
]


class OnOneDaemon(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = testing.Daemon(gpus=2).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None)

    def check_right(self, program, *arguments, name=None, **options):
        done = self.daemon.run(
            testing.BUILD.program(program), *arguments, flags=("--gpus", "2"), **options
        )
        name = name or program
        self.assertEqual(
            (done.returncode, done.stdout.splitlines()[-1:]),
            (0, [f"{name}: right"]),
            done.stdout + done.stderr,
        )


class Programs(OnOneDaemon):
    def test_examples_with_static_cudart(self):
        for name in EXAMPLES:
            with self.subTest(name):
                self.check_right(name)

    def test_examples_with_shared_cudart(self):
        libraries = os.pathsep.join(
            f"{os.environ['FARGPU_CUDA_ROOT']}/{folder}" for folder in ("lib64", "lib")
        )
        for name in EXAMPLES:
            with self.subTest(name):
                self.check_right(
                    f"{name}_shared",
                    name=name,
                    env=testing.clean_environment(LD_LIBRARY_PATH=libraries),
                )

    def test_programs_of_one_topic(self):
        for name in OTHERS:
            with self.subTest(name):
                self.check_right(name)

    @testing.not_with_an_older_release("its simulated GPU has no clusters")
    def test_clusters_and_bulk_copies(self):
        self.check_right("clusters_of_tiles")
        self.check_right("tensor_maps")

    def test_every_call_waiting_gives_the_same(self):
        for name in ["streams_events", "callbacks", "many_threads"]:
            with self.subTest(name):
                self.check_right(name, env=testing.clean_environment(FARGPU_SYNC=1))

    def test_full_queue(self):
        """Launches wait for places in the driver's queue for longer than a client waits for a sign
        of life."""
        done = self.daemon.run(testing.BUILD.program("slow_queue"), "10", "2000")
        self.assertEqual(done.stdout, "slow_queue: right\n", done.stderr)

    def test_loading_behind_a_host_function(self):
        """A driver loads a library at its first use in a context, and waits for all streams then,
        also for one that a host function holds."""
        for name in ("held_launches", "callbacks"):
            done = testing.run(
                [testing.BUILD.fargpu, "run", "--sim", "--", testing.BUILD.program(name)],
                env=testing.clean_environment(FARGPU_SIM_LOCKED_WAITS="1"),
            )
            self.assertEqual(done.stdout, f"{name}: right\n", done.stderr)

    def test_launch_blocking(self):
        self.check_right("scan", env=testing.clean_environment(CUDA_LAUNCH_BLOCKING=1))

    def test_program_with_rpath_to_another_libcuda(self):
        self.check_right("vector_add_rpath", name="vector_add")

    def test_driver_api_with_files_of_nvcc(self):
        for image in ["triple.fatbin", "triple.ptx"]:
            with self.subTest(image):
                self.check_right("driver_fatbin", testing.BUILD.program(image))

    @testing.not_with_an_older_release("it sends the linked container alone")
    def test_device_code_that_the_driver_links(self):
        self.check_right("separate_code")

    @testing.not_with_an_older_release("its simulated GPU launches no graphs from kernels")
    def test_graphs_that_kernels_launch(self):
        """What nvcc makes of device code of the CUDA runtime; the driver links it."""
        done = self.daemon.run(
            testing.BUILD.program("graph_launches_by_kernels"),
            testing.BUILD.program("graph_launches_by_kernels.ptx"),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout)["values"], [8353])

    def test_nvrtc(self):
        libraries = os.pathsep.join(
            f"{os.environ['FARGPU_CUDA_ROOT']}/{folder}" for folder in ("lib64", "lib")
        )
        self.check_right("nvrtc_program", env=testing.clean_environment(LD_LIBRARY_PATH=libraries))

    def test_printf_is_in_order(self):
        done = self.daemon.run(testing.BUILD.program("printf_order"))
        want = [line for i in range(5) for line in (f"host {i}", f"device {i}")]
        want.append("-5 7 ff z  3.14 1.000000e+10 text 1234567890123 %")
        want += [f"line {i}" for i in range(200)] + ["end"]
        self.assertEqual(done.stdout.splitlines(), want, done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_failed_assert_is_told_to_its_client(self):
        with testing.Daemon() as daemon:
            done = daemon.run(testing.BUILD.program("failed_assert"))
            other = daemon.run(testing.BUILD.program("vector_add"))
            log = daemon.log_text()
        self.assertEqual(done.stdout, "failed_assert: right\n", done.stderr)
        said = [line for line in done.stderr.splitlines() if "Assertion" in line]
        places = [f"block: [1,0,0], thread: [{t},0,0]" for t in range(3)]
        self.assertEqual(len(said), 3, done.stderr)
        for line, place in zip(sorted(said), places, strict=True):
            self.assertRegex(
                line,
                r"^\S*failed_assert\.cu:\d+: void check\(const int \*, int\): "
                + re.escape(place)
                + r" Assertion `values\[i\] < limit` failed\.$",
            )
        self.assertNotIn("Assertion `", other.stderr)
        self.assertNotIn("Assertion `", log)

    def test_client_reads_why_the_simulated_gpu_refused(self):
        program = testing.BUILD.program("refused_code")
        with testing.Daemon() as daemon:
            remote = daemon.run(program)
            other = daemon.run(testing.BUILD.program("vector_add"))
        local = testing.run([testing.BUILD.fargpu, "run", "--sim", "--", program])
        for done in (remote, local):
            self.assertEqual(done.stdout, "refused_code: right\n", done.stderr)
            # Each once, however often the program tries.
            wanted = ["frobnicate", "machine code", "illegal address in kernel wild"]
            said = [line for line in done.stderr.splitlines() if "simulated GPU: " in line]
            self.assertEqual(len(said), len(wanted), done.stderr)
            for line, text in zip(said, wanted, strict=True):
                self.assertIn(text, line)
            self.assertIn("PTX line 7", said[0])
        self.assertEqual(other.stderr, "")

    def test_example_with_printf(self):
        done = self.daemon.run(testing.BUILD.program("device_printf"))
        want = []
        for r in range(3):
            want.append(f"host before round {r}")
            want += [f"round {r}: block 0 thread {t} says hello {0.5 * t:.2f}" for t in range(2)]
        self.assertEqual(done.stdout.splitlines(), want + ["device_printf: right"], done.stderr)

    def test_visible_devices(self):
        for visible, devices in [("0", 1), ("1,0", 2), ("1", 1)]:
            done = self.daemon.run(
                testing.BUILD.program("memory_report"),
                flags=("--gpus", "2"),
                env=testing.clean_environment(CUDA_VISIBLE_DEVICES=visible),
            )
            self.assertEqual(done.stdout.splitlines()[:1], [f"devices {devices}"], done.stderr)

    def test_visible_devices_of_a_private_daemon(self):
        for visible, line in [("1", "devices 1"), ("1,0", "devices 2"), ("0", "devices 1")]:
            done = testing.run(
                [
                    testing.BUILD.fargpu,
                    "run",
                    "--sim",
                    "--sim-gpus",
                    "2",
                    "--",
                    testing.BUILD.program("memory_report"),
                ],
                env=testing.clean_environment(CUDA_VISIBLE_DEVICES=visible),
            )
            self.assertEqual(done.stdout.splitlines()[:1], [line], done.stderr)


@testing.not_with_an_older_release("it does not know these variables")
class ManagedVariables(OnOneDaemon):
    def test_a_program(self):
        self.check_right("managed_variables")

    def test_every_call_waiting_gives_the_same(self):
        self.check_right("managed_variables", env=testing.clean_environment(FARGPU_SYNC=1))

    def test_by_signals(self):
        env = testing.clean_environment(FARGPU_TEST_USERFAULTFD="refused")
        self.check_right("managed_variables", env=env)

    def test_they_come_as_a_whole(self):
        self.check_right("managed_variables", env=testing.clean_environment(FARGPU_MANAGED="eager"))

    def test_several_sessions_of_a_job(self):
        """Each has its own, at whatever addresses."""
        program = str(testing.BUILD.program("managed_variables"))
        done = self.daemon.run(
            *("sh", "-c", 'for i in 1 2 3 4; do "$0" & done; wait', program),
            flags=("--gpus", "2"),
        )
        self.assertEqual(done.stdout, "managed_variables: right\n" * 4, done.stderr)

    def test_where_addresses_are_taken(self):
        done = self.daemon.run(testing.BUILD.program("managed_variables_taken"))
        self.assertEqual(done.stdout, "managed_variables_taken: right\n", done.stderr)
        self.assertRegex(
            done.stderr, r"cuModuleGetGlobal: .* __managed__ variable of 4 bytes at 0x.*: refused"
        )


if __name__ == "__main__":
    testing.main()
