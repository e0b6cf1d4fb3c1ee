"""Runs one conformance program on the simulated driver directly and through fargpu, and compares
what it printed and how it ended. FARGPU_TEST_TRANSPORT=tls: through a daemon that takes encrypted
connections; tcp or shm: through a private one over this transport; else over both, one by one."""

import difflib
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import fargpu_testing as testing

GPUS = 2


def main():
    build = testing.BUILD = testing.Build(sys.argv[1])
    # A word with "=" is a variable for the simulated GPU, the others are the program's arguments.
    settings = dict(word.split("=", 1) for word in sys.argv[3:] if "=" in word)
    arguments = [word for word in sys.argv[3:] if "=" not in word]
    program = [build.folder / "tests" / "conformance" / sys.argv[2], *arguments]
    direct = testing.run(
        program,
        env=testing.clean_environment(
            LD_LIBRARY_PATH=build.sim_libraries, FARGPU_SIM_GPUS=GPUS, **settings
        ),
    )
    wanted = os.environ.get("FARGPU_TEST_TRANSPORT")
    if wanted == "tls":
        return compare(direct, run_encrypted(program, settings), "tls")
    return max(
        compare(direct, run_privately(build, program, settings, transport), transport)
        for transport in ((wanted,) if wanted else ("tcp", "shm"))
    )


def run_privately(build, program, settings, transport):
    return testing.run(
        [
            build.fargpu,
            *("run", "--sim", "--sim-gpus", GPUS, "--transport", transport, "--"),
            *program,
        ],
        env=testing.clean_environment(
            **((testing.WAITING_DRIVER if transport == "tcp" else {}) | settings)
        ),
    )


def run_encrypted(program, settings):
    with testing.Daemon(gpus=GPUS, environment=settings) as daemon:
        remote = daemon.run(*program, env=testing.clean_environment(**settings))
        sessions = re.findall(r'transport="(\w+)', daemon.log_text())
    assert sessions and set(sessions) == {"tls"}, f"sessions over {sessions}"
    return remote


def differences(direct, remote):
    """Lines of a comparison of what both printed; empty: the same."""
    return "\n".join(
        difflib.unified_diff(
            direct.stdout.splitlines(),
            remote.stdout.splitlines(),
            "direct",
            "fargpu",
            lineterm="",
            n=2,
        )
    )


def compare(direct, remote, transport):
    different = differences(direct, remote)
    print(different)
    wrong = bool(different)
    if direct.returncode != 0:
        print(f"on the driver itself the program ended with {direct.returncode}")
        wrong = True
    if direct.returncode != remote.returncode:
        print(
            f"exit code {direct.returncode} directly, "
            f"{remote.returncode} through fargpu over {transport}"
        )
        wrong = True
    if wrong:
        print(
            "--- output through fargpu ---",
            remote.stdout,
            "--- stderr, direct ---",
            direct.stderr,
            "--- stderr, fargpu ---",
            remote.stderr,
            sep="\n",
        )
        return 1
    print(f"{transport}: {len(direct.stdout.splitlines())} lines agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
