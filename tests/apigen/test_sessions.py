"""Which operand decides of which session a call is (schema/README.md, "Sessions")."""

import unittest

from fixture import Description


class Sessions(Description):
    def target(self, parameters, more=""):
        text = f"- fn: CUresult cuA({parameters})\n  since: 2000\n  call: sync\n{more}"
        return self.describe(text).function("cuA").target

    def test_the_stream_comes_first(self):
        self.assertEqual(self.target("CUevent e, CUstream s, CUdevice d"), "CallTarget::of(s)")

    def test_then_the_first_handle(self):
        self.assertEqual(self.target("CUdevice d, CUevent e, CUmemoryPool p"), "CallTarget::of(e)")
        self.assertIn("<const void*>(h)", self.target("CUmemGenericAllocationHandle h, CUdevice d"))

    def test_then_a_device(self):
        self.assertEqual(self.target("CUdevice a, CUdevice b"), "CallTarget::of_device(a)")

    def test_then_a_location(self):
        self.assertEqual(
            self.target("CUmemLocation *w", "  args: {w: {in: struct}}\n"),
            "CallTarget::of_location(w)",
        )
        self.assertIn(
            "&p->location", self.target("const CUmemPoolProps *p", "  args: {p: {in: struct}}\n")
        )

    def test_else_the_current_context(self):
        made = "  args: {e: {out: handle, creates: event}}\n"
        self.assertEqual(
            self.target("CUevent *e, unsigned int flags", made), "CallTarget::of_current()"
        )
        self.assertEqual(self.target("CUdeviceptr address"), "CallTarget::of_current()")

    def test_the_description_may_say_so(self):
        self.assertEqual(
            self.target("CUdeviceptr p, CUevent e", "  session: p\n"), "CallTarget::of_memory(p)"
        )
        self.assertEqual(
            self.target("CUcontext peer", "  session: current\n"), "CallTarget::of_current()"
        )
        self.refused(
            "- fn: CUresult cuA(CUevent e)\n  since: 2000\n  call: sync\n  session: e\n",
            "cuA",
            "no device pointer",
        )

    def test_nothing_in_the_generated_code_has_a_current_session(self):
        text = "- fn: CUresult cuA(CUevent e)\n  since: 2000\n  call: sync\n"
        for path, made in self.cpp(text).items():
            self.assertNotIn("current_session", made, path)


if __name__ == "__main__":
    unittest.main()
