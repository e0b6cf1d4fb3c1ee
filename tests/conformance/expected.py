"""Runs one conformance program on the simulated driver directly, and compares what it printed with
a committed text. For programs whose calls fargpu does not forward yet; compare.py does more."""

import difflib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import fargpu_testing as testing


def main():
    build, expected = testing.Build(sys.argv[1]), pathlib.Path(sys.argv[3])
    ran = testing.run(
        [build.folder / "tests" / "conformance" / sys.argv[2]],
        env=testing.clean_environment(LD_LIBRARY_PATH=build.sim_libraries, FARGPU_SIM_GPUS=2),
    )
    differences = list(
        difflib.unified_diff(
            expected.read_text().splitlines(),
            ran.stdout.splitlines(),
            str(expected),
            "direct",
            lineterm="",
            n=2,
        )
    )
    print("\n".join(differences))
    if differences or ran.returncode != 0:
        print(f"ended with {ran.returncode}", ran.stderr, sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
