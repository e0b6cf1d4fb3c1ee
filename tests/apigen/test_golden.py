"""What is made for a few functions, word for word: tests/apigen/golden/<name>.txt is the output
of `apigen show` for demo.yml and demo_internal.yml.
"""

import os
import unittest
from pathlib import Path

from apigen import show
from fixture import Description

HERE = Path(__file__).resolve().parent


class Golden(Description):
    def setUp(self):
        super().setUp()
        (self.schema / "api" / "registry.yml").write_text(
            "cuDemoAlloc_v2: 64\ncuDemoCreate: 65\ncuDemoFill: 66\n"
            "cuDemoNames: 67\ncuDemoGone: 68\ncuDemoCount: 69\n"
            "cuDemoWork: 70\ncuDemoRecord: 71\ncuDemoWait: 72\n"
            "fgDemoHold: 73\nfgDemoPut: 74\n"
        )
        internal = (HERE / "demo_internal.yml").read_text()
        (self.schema / "api" / "internal.yml").write_text(internal)
        self.api = self.describe((HERE / "demo.yml").read_text())

    def test_functions(self):
        for f in self.api.functions:
            path = HERE / "golden" / f"{f.name}.txt"
            made = show.text(self.api, self.schema, f.name) + "\n"
            if os.environ.get("FARGPU_WRITE_GOLDEN"):
                path.parent.mkdir(exist_ok=True)
                path.write_text(made)
            with self.subTest(f.name):
                self.assertEqual(
                    path.read_text(),
                    made,
                    f"differs; FARGPU_WRITE_GOLDEN=1 writes {path.name} anew",
                )


if __name__ == "__main__":
    unittest.main()
