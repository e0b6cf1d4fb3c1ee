"""expected.py BUILD "PROGRAM [ARGUMENT]..." TEXT [direct|shm|tcp]...

Runs one conformance program, on the simulated driver directly or through fargpu, and compares what
it printed with a committed text of a real driver. compare.py does without one."""

import difflib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import fargpu_testing as testing

GPUS = 2


def main():
    build, expected = testing.Build(sys.argv[1]), pathlib.Path(sys.argv[3])
    name, *arguments = sys.argv[2].split()
    program = [build.folder / "tests" / "conformance" / name, *arguments]
    return max(compare(build, program, expected, place) for place in sys.argv[4:] or ("direct",))


def run(build, program, place):
    if place == "direct":
        environment = {"LD_LIBRARY_PATH": build.sim_libraries, "FARGPU_SIM_GPUS": GPUS}
        return testing.run(program, env=testing.clean_environment(**environment))
    wrapper = [build.fargpu, "run", "--sim", "--sim-gpus", GPUS, "--transport", place, "--"]
    return testing.run([*wrapper, *program], env=testing.clean_environment())


def compare(build, program, expected, place):
    ran = run(build, program, place)
    differences = list(
        difflib.unified_diff(
            [x for x in expected.read_text().splitlines() if not x.startswith("#")],
            ran.stdout.splitlines(),
            str(expected),
            place,
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
