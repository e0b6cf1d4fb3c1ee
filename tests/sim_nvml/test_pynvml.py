"""nvidia-ml-py on the simulated management library, which it finds as libnvidia-ml.so.1."""

import ctypes
import inspect
import os
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".deps" / "python"))
try:
    import pynvml
except ImportError:
    print("nvidia-ml-py is not there: scripts/setup fetches it")
    sys.exit(77)

LAYOUT = ROOT / "tests/nvml_abi/layout.cc"
# Their names without a version are those of old layouts.
NEWEST = {
    "nvmlGridLicensableFeature_t": "nvmlGridLicensableFeature_v4_t",
    "nvmlGridLicensableFeatures_t": "nvmlGridLicensableFeatures_v4_t",
}
GPUS = 2
REFUSALS = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NotFound)


class Library(unittest.TestCase):
    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        self.gpu = pynvml.nvmlDeviceGetHandleByIndex(GPUS - 1)

    def test_all_gpus_whatever_cuda_sees(self):
        self.assertIn("CUDA_VISIBLE_DEVICES", os.environ)
        self.assertEqual(pynvml.nvmlDeviceGetCount(), GPUS)
        self.assertEqual(pynvml.nvmlDeviceGetIndex(self.gpu), GPUS - 1)

    def test_identity(self):
        self.assertTrue(pynvml.nvmlSystemGetDriverVersion().startswith("580."))
        self.assertEqual(pynvml.nvmlSystemGetCudaDriverVersion() // 1000, 13)
        self.assertEqual(pynvml.nvmlDeviceGetName(self.gpu), "fargpu simulated GPU (sm_90)")
        uuid = pynvml.nvmlDeviceGetUUID(self.gpu)
        self.assertRegex(uuid, "^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        same = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self.assertEqual(pynvml.nvmlDeviceGetIndex(same), GPUS - 1)
        bus = pynvml.nvmlDeviceGetPciInfo(self.gpu).busId
        same = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
        self.assertEqual(pynvml.nvmlDeviceGetIndex(same), GPUS - 1)

    def test_memory(self):
        for version in (None, pynvml.nvmlMemory_v2):
            memory = pynvml.nvmlDeviceGetMemoryInfo(self.gpu, version=version)
            self.assertEqual((memory.total, memory.used), (256 << 20, 0))
            self.assertEqual(memory.free, memory.total)

    def test_lists(self):
        self.assertEqual(pynvml.nvmlDeviceGetComputeRunningProcesses(self.gpu), [])
        memory = pynvml.nvmlDeviceGetSupportedMemoryClocks(self.gpu)
        self.assertEqual(len(memory), 1)
        self.assertEqual(len(pynvml.nvmlDeviceGetSupportedGraphicsClocks(self.gpu, memory[0])), 3)
        kind, samples = pynvml.nvmlDeviceGetSamples(self.gpu, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)
        self.assertEqual(kind, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT)
        power = pynvml.nvmlDeviceGetPowerUsage(self.gpu)
        self.assertEqual({s.sampleValue.uiVal for s in samples}, {power})

    def test_this_process_has_a_name(self):
        name = pynvml.nvmlSystemGetProcessName(os.getpid())
        self.assertEqual(os.path.basename(name), os.path.basename(sys.executable))

    def test_setters_are_refused(self):
        with self.assertRaises(pynvml.NVMLError_NoPermission):
            pynvml.nvmlDeviceSetPowerManagementLimit(self.gpu, 1)

    def test_every_question_about_a_gpu_has_an_answer_or_is_not_supported(self):
        """No crash, no argument that one side has longer, no version that only one side knows."""
        answered = 0
        for name, function in sorted(vars(pynvml).items()):
            if not name.startswith("nvmlDeviceGet") or not inspect.isfunction(function):
                continue
            parameters = list(inspect.signature(function).parameters.values())
            required = [p for p in parameters if p.default is p.empty]
            if [p.name.lower() for p in required] not in (["handle"], ["device"]):
                continue
            with self.subTest(name):
                try:
                    function(self.gpu)
                    answered += 1
                except REFUSALS:
                    pass
        self.assertGreater(answered, 60)

    def test_after_a_fork(self):
        child = os.fork()
        if child == 0:
            os._exit(pynvml.nvmlDeviceGetCount())
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), GPUS)

    def test_layouts(self):
        """Its structs, which it writes down by itself, are as large as those of schema/nvml."""
        sizes = dict(re.findall(r"^FARGPU_LAYOUT\((\w+), (\d+),", LAYOUT.read_text(), re.M))
        compared = 0
        for name, size in sizes.items():
            theirs = getattr(pynvml, f"c_{NEWEST.get(name, name)}", None)
            if theirs and name != "nvmlGpuFabricInfo_t":  # theirs has 80 bytes for a UUID of 16
                with self.subTest(name):
                    self.assertEqual(ctypes.sizeof(theirs), int(size))
                    compared += 1
        self.assertGreater(compared, 40)

    def test_fields(self):
        wanted = [pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED]
        fields = pynvml.nvmlDeviceGetFieldValues(self.gpu, wanted)
        outcomes = [f.nvmlReturn for f in fields]
        self.assertEqual(outcomes, [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_SUPPORTED])


if __name__ == "__main__":
    unittest.main()
