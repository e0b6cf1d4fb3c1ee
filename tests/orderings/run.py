"""Runs one program of this folder on the simulated driver directly, and through fargpu.

    run.py BUILD SOURCE [--gate=OPEN/PERIOD] [TRANSPORT...]

With --gate the daemon closes the gates of its sessions by the clock (server/daemon/blind_gate.h),
and the program runs through fargpu alone. Each run must end with 0 and the line "NAME: right".
FARGPU_TEST_TRANSPORT or the arguments name the transports (default: shm and tcp)."""

import itertools
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import fargpu_testing as testing

GPUS = 2


def options_of(source):
    """Options for `fargpu run`, from a line "// run: OPTION..." near the top of the source."""
    for line in source.read_text().splitlines()[:12]:
        if line.startswith("// run: "):
            return line.removeprefix("// run: ").split()
    return []


def simulation_of(source):
    """How the simulated GPU is to be, from lines "// sim: NAME=VALUE" near the top."""
    lines = [line for line in source.read_text().splitlines()[:12] if line.startswith("// sim: ")]
    return dict(line.removeprefix("// sim: ").split("=", 1) for line in lines)


def again_of(source):
    """Settings of fargpu with which it runs once more, from lines "// again: NAME=VALUE"."""
    lines = [line for line in source.read_text().splitlines()[:12] if line.startswith("// again: ")]
    return [dict([line.removeprefix("// again: ").split("=", 1)]) for line in lines]


def waiting_driver(transport):
    return testing.WAITING_DRIVER if transport == "tcp" else {}


def is_right(name, where, done):
    if done.returncode == 0 and done.stdout.splitlines()[-1:] == [f"{name}: right"]:
        print(f"{where}: right")
        return True
    print(f"{where}: exit code {done.returncode}", done.stdout, done.stderr[-8000:], sep="\n")
    return False


def main():
    build, source = testing.Build(sys.argv[1]), pathlib.Path(sys.argv[2])
    forced = os.environ.get("FARGPU_TEST_TRANSPORT")
    gates = [each for each in sys.argv[3:] if each.startswith("--gate=")]
    gate = {"FARGPU_TEST_GATE": gates[0].removeprefix("--gate=")} if gates else {}
    named = [each for each in sys.argv[3:] if each not in gates]
    transports = named or ([forced] if forced else ["shm", "tcp"])
    name = source.stem
    program = build.folder / "tests" / "orderings" / f"orderings_{name}"
    simulation = simulation_of(source)
    results = []
    if not gate:
        direct = testing.run(
            [program],
            env=testing.clean_environment(
                LD_LIBRARY_PATH=build.sim_libraries, FARGPU_SIM_GPUS=GPUS, **simulation
            ),
        )
        results.append(is_right(name, "the driver itself", direct))
    settings = [{}, *([] if gate else again_of(source))]
    for transport, each in itertools.product(transports, settings):
        remote = testing.run(
            [
                *(build.fargpu, "run", "--sim", "--sim-gpus", GPUS, "--transport", transport),
                *options_of(source),
                *("--", program),
            ],
            # Threads that look beside each other, also on a host with few cores.
            env=testing.clean_environment(
                FARGPU_COPY_THREADS="3",
                **(waiting_driver(transport) | simulation | each | gate),
            ),
        )
        results.append(is_right(name, " ".join([transport, *map("=".join, each.items())]), remote))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
