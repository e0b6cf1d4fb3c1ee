"""A small description in a temporary folder, for tests that bend it."""

import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schema"
sys.path.insert(0, str(SCHEMA))

from apigen import describe, errors, generate  # noqa: E402  (needs the path above)


class Description(unittest.TestCase):
    """self.describe(text) loads one chapter "demo" with that text."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.schema = self.folder / "schema"
        (self.schema / "api" / "driver").mkdir(parents=True)
        shutil.copy(SCHEMA / "api" / "types.yml", self.schema / "api")
        (self.schema / "api" / "registry.yml").write_text("cuA: 64\n")

    def describe(self, text):
        (self.schema / "api" / "driver" / "demo.yml").write_text(text)
        return describe.load(self.schema, complete=False)

    def cpp(self, text):
        """path -> text of everything generated."""
        return generate.cpp(self.describe(text), self.schema)

    def refused(self, text, *parts):
        """The description is refused with a message that holds all `parts`."""
        with self.assertRaises(errors.DescriptionError) as caught:
            self.describe(text)
        for part in parts:
            self.assertIn(part, str(caught.exception))
