"""Tools that show GPUs, as they are: gpustat and nvitop, which stand on nvidia-ml-py, and NVIDIA's
nvidia-smi where FARGPU_NVIDIA_SMI is the path of one. What they say of a job's GPUs, memory and
processes."""

import importlib.util
import json
import os
import re
import sys
import unittest

import fargpu_testing as testing
from nvml_job import LIMIT, PYTHON, Job, need_nvidia_ml_py

MODULES = ("gpustat", "nvitop", "psutil", "blessed")
SCRIPT = """
import subprocess
take_memory(8 << 20, 1)
done = subprocess.run({command!r}, capture_output=True, text=True)
print(json.dumps([os.getpid(), done.returncode, done.stdout, done.stderr]))
"""


def setUpModule():
    need_nvidia_ml_py()


class Tool(Job):
    """In a job of two of three GPUs, of which a process holds 8 of 64 MiB of the second."""

    def tool(self, *command):
        (pid, code, output, errors), _ = self.ask(
            SCRIPT.format(command=command), PYTHONPATH=PYTHON, TERM="dumb", COLUMNS="100"
        )
        self.assertEqual(code, 0, output + errors)
        return pid, output, errors


class OfPython(Tool):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
        if missing:
            raise unittest.SkipTest(f"{missing[0]} is not there: scripts/setup fetches it")

    def tool(self, *command):
        pid, output, errors = super().tool(sys.executable, "-m", *command)
        self.assertEqual(errors, "")
        return pid, output

    def test_gpustat_as_json(self):
        pid, output = self.tool("gpustat", "--json")
        found = json.loads(output)
        gpus = found["gpus"]
        self.assertEqual([gpu["index"] for gpu in gpus], [0, 1])
        self.assertEqual(len({gpu["uuid"] for gpu in gpus}), 2)
        self.assertEqual([gpu["memory.total"] for gpu in gpus], [LIMIT >> 20] * 2)
        self.assertEqual([gpu["memory.used"] for gpu in gpus], [0, 8])
        self.assertEqual(gpus[0]["processes"], [])
        (process,) = gpus[1]["processes"]
        self.assertEqual((process["pid"], process["gpu_memory_usage"]), (pid, 8))
        self.assertIn("python", process["command"])
        self.assertEqual(found["driver_version"], "580.0.0")
        for key in ("temperature.gpu", "utilization.gpu", "power.draw", "enforced.power.limit"):
            self.assertIsInstance(gpus[0][key], int, key)

    def test_gpustat_as_a_page(self):
        pid, output = self.tool("gpustat", "--no-color", "--show-cmd", "--show-pid")
        head, first, second = output.splitlines()
        self.assertTrue(head.endswith("580.0.0"), head)
        self.assertRegex(first, r"^\[0\] fargpu simulated GPU.*\| +0 / +64 MB \|$")
        self.assertRegex(second, rf"^\[1\] .*\| +8 / +64 MB \| python[\d.]*/{pid}\(8M\)$")

    def test_nvitop(self):
        pid, output = self.tool("nvitop", "-1", "--no-unicode")
        lines = output.splitlines()
        self.assertEqual(sum("64.00MiB" in line for line in lines), 2, output)
        self.assertEqual(sum("8.00MiB / 64.00MiB" in line for line in lines), 1, output)
        self.assertIn("CUDA Driver Version: 13.0", output)
        processes = output[output.index("Processes:") :]
        self.assertRegex(processes, rf"\| +1 +{pid} C +\S+ +8\.00MiB ")
        self.assertEqual(len(re.findall(r"\d C +\S+ +[\d.]+MiB ", processes)), 1, processes)
        # Nothing that it asked for was refused.
        self.assertNotIn("ERR", output)


class NvidiaSmi(Tool):
    @classmethod
    def setUpClass(cls):
        if "FARGPU_NVIDIA_SMI" not in os.environ:
            raise unittest.SkipTest("FARGPU_NVIDIA_SMI is not set")

    def smi(self, *arguments):
        # On stderr it may be named what is not supported.
        pid, output, _ = self.tool(os.environ["FARGPU_NVIDIA_SMI"], *arguments)
        return pid, output.splitlines()

    def test_default_page(self):
        pid, lines = self.smi()
        self.assertEqual(sum("fargpu simulated GPU" in line for line in lines), 2)
        self.assertEqual(sum(re.search(r" 8MiB / +64MiB ", line) is not None for line in lines), 1)
        processes = [line for line in lines if re.search(r"\d +C +\S*python", line)]
        self.assertEqual(len(processes), 1, lines)
        self.assertRegex(processes[0], rf"\| +1 +N/A +N/A +{pid} +C +\S+ +8MiB \|")

    def test_list(self):
        _, lines = self.smi("-L")
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1], r"^GPU 1: fargpu simulated GPU .* \(UUID: GPU-")

    def test_queries(self):
        pid, lines = self.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
        self.assertEqual(lines, [f"{pid}, 8 MiB"])
        _, lines = self.smi("--query-gpu=index,memory.total,memory.used", "--format=csv,noheader")
        self.assertEqual(lines, ["0, 64 MiB, 0 MiB", "1, 64 MiB, 8 MiB"])

    def test_everything(self):
        pid, lines = self.smi("-q")
        text = "\n".join(lines)
        self.assertRegex(text, rf"Process ID +: {pid}\n +Type +: C\n +Name +: \S*python")
        self.assertEqual(len(re.findall(r"^GPU ", text, re.M)), 2)

    def test_topology(self):
        _, lines = self.smi("topo", "-m")
        self.assertRegex("\n".join(lines), r"GPU0\s+X\s+NODE\s.*\nGPU1\s+NODE\s+X\s")

    def test_monitors(self):
        pid, lines = self.smi("pmon", "-c", "1", "-s", "um")
        self.assertEqual(len(lines), 4, lines)
        self.assertRegex(lines[2], r"^ +0 +- ")
        self.assertRegex(lines[3], rf"^ +1 +{pid} +C .* 8 .*python")
        _, lines = self.smi("dmon", "-c", "1")
        self.assertEqual([line.split()[:2] for line in lines[2:]], [["0", "76"], ["1", "76"]])


if __name__ == "__main__":
    testing.main()
