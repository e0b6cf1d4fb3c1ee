"""Conformance programs whose server or memory means no good. They may fail in any way but by a
crash of the client's library."""

import collections
import functools
import os
import random
import re
import signal
import subprocess

import fargpu_testing as testing

CRASHES = {-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE)}
# Host memory of a session is lost with its server: who uses it then crashes, as documented.
HOST_MEMORY = re.compile(
    rb"cuMemAllocHost|cuMemHostAlloc|cuMemHostRegister|cuMemAllocManaged|LibraryGetManaged"
    rb"|cuModuleGetGlobal|cuGetProcAddress"
)
LIMIT = 15  # of one program, in seconds


def programs():
    """The conformance programs of this build."""
    folder = testing.BUILD.programs.parent / "conformance"
    found = sorted(p for p in folder.glob("conformance_*") if os.access(p, os.X_OK))
    assert len(found) > 50
    return found


def with_management():
    """These, and often the one that asks NVML."""
    return programs() + 8 * [testing.BUILD.folder / "tests" / "fuzz_nvml_program"]


class Programs:
    """`flags`: of `fargpu run`. `beside`: is called with each program that has begun."""

    def __init__(self, run, *flags, beside=lambda program: None):
        self.campaign, self.flags, self.beside = run, flags, beside
        self.crashed, self.ends = [], collections.Counter()
        # A program's own report goes to its stderr, and is looked at here.
        options = "detect_leaks=0:abort_on_error=0:exitcode=99"
        self.environment = testing.clean_environment(ASAN_OPTIONS=options)

    def run(self, chooser):
        """Some program after the other, as long as the campaign goes on."""
        while self.campaign.goes_on():
            path = chooser.choice(with_management())
            program = subprocess.Popen(
                [testing.BUILD.fargpu, "run", *self.flags, "--no-check", "--", path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=self.environment,
                start_new_session=True,
            )
            self.beside(program)
            try:
                report = program.communicate(timeout=LIMIT)[1].decode(errors="replace")
                self.ends[program.returncode] += 1
                self.look_at(path, program.returncode, report)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)  # with its children
                program.communicate()
                self.ends["time"] += 1

    def runs(self, seed):
        """Two of run() at once, each with numbers of its own."""
        return [functools.partial(self.run, random.Random(seed + number)) for number in (1, 2)]

    def look_at(self, path, code, report):
        """Whether the client's library is at fault for this end."""
        found = re.search(r"ERROR: AddressSanitizer(.*?)\n\n", report, re.S)
        is_lost = HOST_MEMORY.search(path.read_bytes())
        if found and re.search(r" \S*/(client|common)/", found[1]):
            if not (is_lost and re.match(": (SEGV|BUS)", found[1])):
                self.crashed.append((path.name, found[0]))
        elif code in CRASHES and not is_lost:
            self.crashed.append((path.name, code))
        if self.crashed:
            self.campaign.crashed.set()
