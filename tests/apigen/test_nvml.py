"""What is made for a few functions of NVML, word for word: tests/apigen/golden/<name>.txt is the
output of `apigen show` for nvml_demo.yml. And descriptions of NVML that are refused.
"""

import os
import re
import shutil
import unittest
from pathlib import Path

from apigen import describe, errors, show
from fixture import SCHEMA, Description

HERE = Path(__file__).resolve().parent
DEMO = (HERE / "nvml_demo.yml").read_text()


class Nvml(Description):
    def setUp(self):
        super().setUp()
        shutil.copytree(SCHEMA / "nvml", self.schema / "nvml")
        self.folder = self.schema / "api" / "nvml"
        self.folder.mkdir()
        self.types = (SCHEMA / "api/nvml/types.yml").read_text()
        (self.schema / "api" / "driver" / "demo.yml").write_text((HERE / "demo.yml").read_text())

    def load(self, text, types=None):
        (self.folder / "types.yml").write_text(types or self.types)
        (self.folder / "demo.yml").write_text(text)
        names = re.findall(r"(nvmlDemo\w+)\(", text)
        (self.folder / "symbols.txt").write_text("\n".join(names))
        return describe.load(self.schema, complete=False)

    def refused(self, text, *parts, types=None):
        with self.assertRaises(errors.DescriptionError) as caught:
            self.load(text, types)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_functions(self):
        api = self.load(DEMO)
        for f in api.nvml.functions:
            path = HERE / "golden" / f"{f.name}.txt"
            made = show.text(api, self.schema, f.name) + "\n"
            if os.environ.get("FARGPU_WRITE_GOLDEN"):
                path.write_text(made)
            with self.subTest(f.name):
                self.assertEqual(
                    path.read_text(),
                    made,
                    f"differs; FARGPU_WRITE_GOLDEN=1 writes {path.name} anew",
                )

    def test_inputs_are_said(self):
        types = self.types.replace("  nvmlClockOffset_v1_t: [type, pstate]\n", "")
        self.refused(
            DEMO,
            "nvmlDemoOffsets",
            "which fields of 'nvmlClockOffset_v1_t' are inputs",
            types=types,
        )
        types = self.types.replace("[type, pstate]", "[type, state]")
        self.refused(DEMO, "nvmlClockOffset_v1_t has no field 'state'", types=types)

    def test_counts_are_fields(self):
        types = self.types.replace("bridgeCount: bridgeChipInfo", "bridgeCount: bridges")
        self.refused(DEMO, "nvmlBridgeChipHierarchy_t has no field 'bridges'", types=types)

    def test_structs_that_go_both_ways_have_versions(self):
        text = DEMO.replace("{inout: struct, versions: [nvmlClockOffset_v1_t]}", "{inout: struct}")
        self.refused(text, "nvmlDemoOffsets", "info", "needs 'versions'")

    def test_arrays_with_texts(self):
        text = DEMO.replace("unsigned long long *addresses", "nvmlPciInfo_t *addresses")
        self.refused(text, "nvmlDemoList", "addresses", "texts and counts in arrays")

    def test_what_every_entry_needs(self):
        for entry, message in (
            ("call: asks", "'asks' is none of"),
            ("call: unsupported", "a reason is needed"),
            ("call: local\n  why: w\n  cache: true", "need a message"),
            ("call: sync\n  args: {x: {out: value}}", "no parameter 'x'"),
            ("call: sync", "say what the pointer means"),
            ("call: sync\n  args: {value: {out: text}}", "'text' is none of"),
            ("call: sync\n  args: {value: {out: struct}}", "is no struct of types.yml"),
            ("call: sync\n  args: {value: {out: array}}", "needs 'len'"),
        ):
            fn = "- fn: nvmlReturn_t nvmlDemoOne(nvmlDevice_t device, unsigned int *value)\n  "
            with self.subTest(entry):
                self.refused(f"# Demo.\n{fn}{entry}\n", "demo.yml:", "nvmlDemoOne", message)

    def test_every_symbol(self):
        self.load(DEMO)
        (self.folder / "symbols.txt").write_text("nvmlDemoName\nnvmlDemoOther\n")
        with self.assertRaisesRegex(errors.DescriptionError, "nvmlDemoPlace is not in symbols.txt"):
            describe.load(self.schema, complete=False)


if __name__ == "__main__":
    unittest.main()
