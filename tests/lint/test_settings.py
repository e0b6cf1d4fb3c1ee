"""The page of environment variables: every variable that the product reads has a row."""

import unittest

import lint_settings

PAGE = """The token is in `FARGPU_TOKEN`.

| variable | meaning |
|---|---|
| `FARGPU_SERVER` | the server |
| `FARGPU_SIM_GPUS`, `FARGPU_SIM_MEMORY` | simulated GPUs, with FARGPU_SPIN |
"""
READS = 'env_text("FARGPU_SERVER"); get("FARGPU_SIM_GPUS");'


class Settings(unittest.TestCase):
    def problems(self, source, other="$FARGPU_SIM_MEMORY"):
        return lint_settings.problems(PAGE, {"client/a.cc": source}, {"scripts/b": other})

    def test_right_ones(self):
        self.assertEqual(self.problems(READS), [])
        self.assertEqual(self.problems(READS + 'message("FARGPU_SPIN: too long");'), [])

    def test_a_variable_without_a_row(self):
        for name in ("FARGPU_TOKEN", "FARGPU_SPIN", "FARGPU_NEW"):
            self.assertEqual(
                self.problems(READS + f'constexpr const char* kName = "{name}";'),
                [f"client/a.cc: docs/settings.md has no row for {name}"],
            )

    def test_a_row_that_nothing_reads(self):
        self.assertEqual(
            self.problems(READS, other=""), ["docs/settings.md: nothing reads FARGPU_SIM_MEMORY"]
        )


if __name__ == "__main__":
    unittest.main()
