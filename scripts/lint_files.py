"""The files of the tree that scripts/lint looks at."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def tracked(*patterns):
    """Names of the files that git follows or would add, in order; of all that fit `patterns`."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [name for name in sorted(set(listing.splitlines())) if (ROOT / name).is_file()]
