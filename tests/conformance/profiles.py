"""Runs the conformance programs on a simulated driver of an older version with an older GPU,
directly and through fargpu, and compares what they printed and how they ended.

    profiles.py BUILD VERSION CAPABILITY LEAST [--all]

A program that calls what this driver has not, or whose kernels this GPU does not run, is left out
and named. At least LEAST programs must agree, and none may differ.

Without --all the programs are left out that alike_on_old_drivers.txt lists with this version:
directly, they print the same on it as on today's driver. With --all that is looked at, too: a
program that is listed and prints something else fails."""

import concurrent.futures
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import fargpu_testing as testing
from compare import differences

GPUS = 2
ALIKE = pathlib.Path(__file__).with_name("alike_on_old_drivers.txt")
# Programs that differ there, by the version up to which they do, and why.
DIFFER = {
    "conformance_capture_rules": ("12.8", "captures are the client's, by the rules of driver 580"),
    "conformance_coredumps": ("12.8", "attributes of core dumps are the client's"),
    "conformance_error_log": ("12.8", "the error log is the client's"),
    **dict.fromkeys(
        ("conformance_linking", "conformance_link_options"),
        (
            "12.2",
            "these drivers do not tell the parameters of kernels; a real link has them in its "
            "cubin, the simulated one does not",
        ),
    ),
    "conformance_versions": ("12.8", "the client has newer forms of functions that a driver has"),
}


def number(version):
    return tuple(int(part) for part in version.split("."))


def tail(done):
    return (done.stderr or done.stdout).strip().splitlines()[-1:]


def alike(version):
    rows = [line.split() for line in ALIKE.read_text().splitlines() if not line.startswith("#")]
    return {f"conformance_{name}" for name, *versions in rows if version in versions}


class Profile:
    def __init__(self, build, version, capability, everything):
        self.build, self.version = build, version
        self.alike, self.everything = alike(version), everything
        self.settings = {"FARGPU_SIM_COMPUTE_CAPABILITY": capability}
        self.driver = build.folder / "lib" / f"libfargpu-sim-{version}.so"
        self.libraries = build.folder / "lib" / f"sim-direct-{version}"

    def programs(self):
        for program in sorted((self.build.folder / "tests" / "conformance").iterdir()):
            if not program.name.startswith("conformance_") or not os.access(program, os.X_OK):
                continue
            until, why = DIFFER.get(program.name, ("0.0", ""))
            if number(self.version) <= number(until):
                print(f"{program.name}: left out: {why}")
            elif self.everything or program.name not in self.alike:
                yield program

    def direct(self, program, libraries, **settings):
        environment = testing.clean_environment(
            LD_LIBRARY_PATH=libraries, FARGPU_SIM_GPUS=GPUS, **settings
        )
        return testing.run([program], env=environment)

    def outcome(self, daemon, program):
        """(name, what it came to: True, None where it cannot run, False; text)"""
        direct = self.direct(program, self.libraries, **self.settings)
        if self.everything:
            today = self.direct(program, self.build.sim_libraries)
            same = (today.stdout, today.returncode) == (direct.stdout, direct.returncode)
            if program.name in self.alike and not same:
                return program.name, False, f"is not alike: {ALIKE.name} is wrong"
            if program.name not in self.alike and same:
                print(f"{program.name}: prints the same on this driver as on today's")
        if direct.returncode != 0:
            return program.name, None, f"cannot run there: {direct.returncode} {tail(direct)}"
        flags = ("--transport", "shm", "--gpus", str(GPUS))
        remote = daemon.run(program, flags=flags)
        if (direct.stdout, 0) == (remote.stdout, remote.returncode):
            return program.name, True, f"{len(direct.stdout.splitlines())} lines agree"
        different = differences(direct, remote)
        said = f"exit code {remote.returncode}\n{different}\n{remote.stderr}"
        return program.name, False, said


def main():
    build = testing.BUILD = testing.Build(sys.argv[1])
    version, capability, least = sys.argv[2], sys.argv[3], int(sys.argv[4])
    profile = Profile(build, version, capability, "--all" in sys.argv[5:])
    daemon = testing.Daemon(
        "--sim-compute-capability", capability, gpus=GPUS, driver=profile.driver
    )
    with daemon, concurrent.futures.ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda one: profile.outcome(daemon, one), profile.programs()))
    for name, _, text in outcomes:
        print(f"{name}: {text}")
    agree = sum(came_to is True for _, came_to, _ in outcomes)
    differ = sum(came_to is False for _, came_to, _ in outcomes)
    print(f"driver {version}, GPU of {capability}: {agree} agree, {differ} differ")
    return 0 if agree >= least and differ == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
