"""GPUs that are divided (MIG) on the simulated management library, by nvidia-ml-py."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".deps" / "python"))
try:
    import pynvml
except ImportError:
    print("nvidia-ml-py is not there: scripts/setup fetches it")
    sys.exit(77)

INSTANCES = 2


class Instances(unittest.TestCase):
    def setUp(self):
        pynvml.nvmlInit()
        self.addCleanup(pynvml.nvmlShutdown)
        self.assertEqual(pynvml.nvmlDeviceGetCount(), 2)
        self.gpu = pynvml.nvmlDeviceGetHandleByIndex(1)

    def instance(self, index):
        return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self.gpu, index)

    def test_the_gpu(self):
        self.assertEqual(pynvml.nvmlDeviceGetMigMode(self.gpu), [1, 1])
        self.assertEqual(pynvml.nvmlDeviceGetMaxMigDeviceCount(self.gpu), INSTANCES)
        self.assertFalse(pynvml.nvmlDeviceIsMigDeviceHandle(self.gpu))
        self.assertTrue(pynvml.nvmlDeviceGetUUID(self.gpu).startswith("GPU-"))
        self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(self.gpu).total, 1 << 30)
        with self.assertRaises(pynvml.NVMLError_NotFound):
            self.instance(INSTANCES)
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self.gpu)

    def test_its_instances(self):
        uuids = set()
        for index in range(INSTANCES):
            instance = self.instance(index)
            self.assertTrue(pynvml.nvmlDeviceIsMigDeviceHandle(instance))
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
            self.assertEqual(pynvml.nvmlDeviceGetUUID(parent), pynvml.nvmlDeviceGetUUID(self.gpu))
            uuid = pynvml.nvmlDeviceGetUUID(instance)
            self.assertTrue(uuid.startswith("MIG-"))
            found = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self.assertEqual(pynvml.nvmlDeviceGetGpuInstanceId(found), index + 1)
            self.assertEqual(pynvml.nvmlDeviceGetComputeInstanceId(found), 0)
            self.assertEqual(pynvml.nvmlDeviceGetMemoryInfo(found).total, 512 << 20)
            attributes = pynvml.nvmlDeviceGetAttributes(found)
            self.assertEqual(attributes.multiprocessorCount, 8)
            self.assertEqual(attributes.gpuInstanceSliceCount, 1)
            with self.assertRaises(pynvml.NVMLError_NotSupported):
                pynvml.nvmlDeviceGetMigMode(found)
            uuids.add(uuid)
        self.assertEqual(len(uuids), INSTANCES)


if __name__ == "__main__":
    unittest.main()
