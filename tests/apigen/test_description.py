"""The real description: complete, in step with its contracts, and enough for the programs that
were watched.
"""

import os
import re
import unittest
from pathlib import Path

from apigen import contracts, describe, names, registry, render
from fixture import SCHEMA

HERE = Path(__file__).resolve().parent


def lines(name):
    return [
        line for line in (HERE / name).read_text().splitlines() if line and not line.startswith("#")
    ]


class RealDescription(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = describe.load(SCHEMA)
        cls.rows = render.proc_entries(cls.api)

    def resolve(self, name, version, per_thread):
        """The symbol that find_proc() of the generated table gives."""
        rows = [r for r in self.rows if r["name"] == name]
        if not any(r["per_thread"] for r in rows):
            per_thread = False
        found = [r for r in rows if r["per_thread"] == per_thread and r["version"] <= version]
        return found[-1]["symbol"] if found else None

    def test_every_symbol_once(self):
        exported = [s for f in self.api.functions for s, _ in f.symbols]
        self.assertEqual(len(exported), 675)
        self.assertEqual(sorted(exported), sorted(self.api.symbols))
        debugger = (SCHEMA / "api" / "debugger_symbols.txt").read_text().split()
        self.assertEqual(len(debugger), 33)
        self.assertFalse(set(debugger) & set(exported))

    def test_prototypes_of_other_headers(self):
        """Builds compare those of cuda.h; the others need headers of OpenGL, EGL and VDPAU."""
        form = re.compile(r"CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_ptsz|_ptds)?\)\((.*?)\);", re.S)
        include = Path(os.environ["CUDA_INCLUDE"])
        declared = {}
        for header in ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"):
            text = (include / header.replace(".h", "Typedefs.h")).read_text()
            for name, version, parameters in form.findall(text):
                declared[header, name, int(version)] = " ".join(parameters.split())
        self.assertGreater(len(declared), 30)
        for f in self.api.functions:
            if f.header not in ("", "none"):
                parameters = declared[f.header, names.proc_name(f.name), f.since]
                self.assertEqual(
                    (f.declaration or "void").replace(" ", ""),
                    parameters.replace("CUDAAPI", "").replace(" ", ""),
                    f.name,
                )

    def test_enough_is_supported(self):
        supported = sum(len(f.symbols) for f in self.api.functions if f.supported or f.retired)
        self.assertGreaterEqual(supported, 300)
        self.assertIn(f"**{supported} of 637**", contracts.coverage(self.api))

    def test_captured_work_enters_its_stream_by_a_submission(self):
        for f in self.api.functions:
            if f.wire and f.capture in ("captured", "captured-unsafe"):
                self.assertTrue(f.submits, f"{f.name} is captured, but is in no one stream")

    def test_requests_of_real_programs_resolve(self):
        for line in lines("proc_requests.txt"):
            name, *versions = line.split()
            for version in versions:
                with self.subTest(name=name, version=version):
                    symbol = self.resolve(name, int(version.rstrip("p")), version.endswith("p"))
                    self.assertIsNotNone(symbol)
                    self.assertEqual(names.proc_name(symbol), name)

    def test_variants(self):
        self.assertEqual(self.resolve("cuMemAlloc", 2000, False), "cuMemAlloc")
        self.assertEqual(self.resolve("cuMemAlloc", 3020, False), "cuMemAlloc_v2")
        self.assertEqual(self.resolve("cuGetProcAddress", 11030, False), "cuGetProcAddress")
        self.assertEqual(self.resolve("cuGetProcAddress", 12000, False), "cuGetProcAddress_v2")
        self.assertEqual(self.resolve("cuCtxGetDevice", 12090, False), "cuCtxGetDevice")
        self.assertEqual(self.resolve("cuCtxGetDevice", 13000, False), "cuCtxGetDevice_v2")
        self.assertEqual(self.resolve("cuMemcpyHtoD", 7000, True), "cuMemcpyHtoD_v2_ptds")
        self.assertIsNone(self.resolve("cuMemcpyHtoD", 6050, True))
        self.assertEqual(self.resolve("cuInit", 13000, True), "cuInit")
        self.assertEqual(
            self.resolve("cuStreamWaitValue32", 8000, True), "cuStreamWaitValue32_ptsz"
        )
        self.assertEqual(
            self.resolve("cuStreamWaitValue32", 13000, True), "cuStreamWaitValue32_v2_ptsz"
        )
        self.assertIsNone(self.resolve("cuNoSuchThing", 13000, False))

    def test_workloads(self):
        section = None
        for line in lines("workload_entries.txt"):
            if not line.startswith(" "):
                section = line
                continue
            name, _, version = line.strip().partition("@")
            symbol = self.resolve(name, int(version), False) if version else name
            with self.subTest(name):
                function = self.api.function(symbol)
                self.assertIsNotNone(function)
                if section == "required" or not ("Graph" in name or "Capture" in name):
                    self.assertTrue(function.supported, f"{name} is called by real programs")

    def test_registry_is_complete_and_append_only(self):
        opcodes = registry.load(SCHEMA / "api" / "registry.yml", SCHEMA)
        self.assertEqual(registry.assign(self.api, opcodes), opcodes)
        self.assertEqual(opcodes["cuMemAlloc_v2"].opcode, 308)
        self.assertEqual(registry.check_append_only(opcodes, opcodes), [])
        moved = dict(opcodes, cuInit=registry.Entry(9999))
        self.assertEqual(len(registry.check_append_only(opcodes, moved)), 1)
        del moved["cuInit"]
        self.assertIn("cuInit", registry.check_append_only(opcodes, moved)[0])

    def test_contracts_are_current(self):
        for name, text in contracts.all_contracts(self.api).items():
            with self.subTest(name):
                self.assertEqual(
                    (SCHEMA.parent / name).read_text(),
                    text,
                    "run: PYTHONPATH=schema python3 -m apigen generate",
                )


if __name__ == "__main__":
    unittest.main()
