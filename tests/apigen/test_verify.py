"""Hand-written halves: a missing, an extra and a doubled one are found."""

import unittest

from apigen import manual
from fixture import Description

TEXT = """# x
- fn: CUresult cuA(int *a)
  since: 2000
  call: local
  why: w
- fn: CUresult cuB(int a)
  since: 2000
  call: async
  server: manual
  why: w
"""


class HandWritten(Description):
    def setUp(self):
        super().setUp()
        self.api = self.describe(TEXT)
        self.client = self.folder / "client" / "manual"
        self.client.mkdir(parents=True)

    def put(self, name, text):
        (self.client / name).write_text(text)

    def test_prototypes(self):
        self.assertEqual(
            [manual.prototype(f, "client") for f in manual.expected(self.api, "client")],
            ["CUresult manual_cuA(int* a);"],
        )
        self.assertEqual(
            [manual.prototype(f, "server") for f in manual.expected(self.api, "server")],
            ["Status manual_cuB(Worker& worker, const Request& request);"],
        )

    def test_complete(self):
        self.put("a.cc", "CUresult manual_cuA(int* a) {\n  return CUDA_SUCCESS;\n}\n")
        self.assertEqual(manual.problems(self.api, "client", self.client), [])

    def test_missing(self):
        self.put("a.cc", "CUresult manual_cuA(int* a);\n")  # a declaration is not enough
        self.assertEqual(len(manual.problems(self.api, "client", self.client)), 1)
        self.assertIn("manual_cuA is missing", manual.problems(self.api, "client", self.client)[0])

    def test_extra(self):
        self.put("a.cc", "CUresult manual_cuA(int* a) {}\nCUresult manual_cuB(int a) {}\n")
        self.assertIn(
            "a.cc: manual_cuB is not described as manual on the client side",
            manual.problems(self.api, "client", self.client)[0],
        )

    def test_doubled(self):
        self.put("a.cc", "CUresult manual_cuA(int* a) {}\n")
        self.put("b.cc", "CUresult manual_cuA(\n    int* a) {}\n")
        self.assertIn("already defined", manual.problems(self.api, "client", self.client)[0])


if __name__ == "__main__":
    unittest.main()
