"""Programs of all calls, with some of their frames changed on the way: a hostile client that is
otherwise right, and a hostile server. A worker may refuse calls and end its session; it must not
crash, nor leave anything, and honest programs beside it are right. A client may fail in any way but
a crash.

  FARGPU_FUZZ_SECONDS (12, of each test), FARGPU_FUZZ_SEED repeat or prolong a run; the last lines
  say how often each call has succeeded and was refused."""

import collections
import os
import random
import re
import signal
import subprocess
import threading
import time
import unittest

import campaign
import fargpu_testing as testing
from calls import Calls
from campaign import SEED
from mutations import Proxy

SECONDS = campaign.seconds(12)
CRASHES = {-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE)}
# Host memory of a session is lost with its server: who uses it then crashes, as documented.
HOST_MEMORY = re.compile(
    rb"cuMemAllocHost|cuMemHostAlloc|cuMemHostRegister|cuMemAllocManaged|LibraryGetManaged"
    rb"|cuModuleGetGlobal|cuGetProcAddress"
)
LIMIT = 15  # of one program, in seconds


class Mutations(unittest.TestCase):
    def setUp(self):
        self.crashed = []
        # A program's own report goes to its stderr, and is looked at here.
        options = "detect_leaks=0:abort_on_error=0:exitcode=99"
        self.environment = testing.clean_environment(ASAN_OPTIONS=options)

    def programs(self):
        folder = testing.BUILD.programs.parent / "conformance"
        found = sorted(p for p in folder.glob("conformance_*") if os.access(p, os.X_OK))
        self.assertGreater(len(found), 50)
        return found

    def run_all(self, daemon, proxy, chooser, until, ends):
        """Programs through the proxy until then; how they have ended."""
        programs = self.programs()
        while time.monotonic() < until:
            program = chooser.choice(programs)
            command = [testing.BUILD.fargpu, "run", "--server", proxy.address]
            command += ["--transport", "tcp", "--no-check", "--", program]
            try:
                done = testing.run(command, timeout=LIMIT, env=self.environment)
            except subprocess.TimeoutExpired:
                ends["time"] += 1
                continue
            ends[done.returncode] += 1
            self.look_at(program, done)

    def look_at(self, program, done):
        """Whether the client's library is at fault for this end."""
        report = re.search(r"ERROR: AddressSanitizer(.*?)\n\n", done.stderr, re.S)
        is_lost = HOST_MEMORY.search(program.read_bytes())
        if report and re.search(r" \S*/(client|common)/", report[1]):
            if not (is_lost and re.match(": (SEGV|BUS)", report[1])):
                self.crashed.append((program.name, report[0]))
        elif done.returncode in CRASHES and not is_lost:
            self.crashed.append((program.name, done.returncode))

    def beside_honest_programs(self, **chances):
        calls = Calls()
        flags = ("--max-memory-per-job", "256M", "--host-memory-per-session", "512M")
        print(f"seed {SEED}", flush=True)
        ends = collections.Counter()
        with testing.Daemon(*flags, "--job-grace", "1s", gpus=2) as daemon:
            with Proxy(daemon, calls, random.Random(SEED), **chances) as proxy:
                until = time.monotonic() + SECONDS
                threads = [
                    threading.Thread(
                        target=self.run_all,
                        args=(daemon, proxy, random.Random(SEED + number), until, ends),
                    )
                    for number in (1, 2)
                ]
                for thread in threads:
                    thread.start()
                honest = campaign.run_honest(self, daemon, until, pause=0.2)
                for thread in threads:
                    thread.join()
                testing.wait_until(lambda: not daemon.workers(), "no worker is left", 60)
            crashes = campaign.crashes(daemon)
            campaign.report(calls, proxy.succeeded, proxy.refused)
            print(
                f"{ends.total()} programs ended with {dict(ends)}, {honest} honest ones; "
                f"{proxy.changed} frames changed, {len(crashes)} crashes"
            )
            # It is no good if it does not get anywhere.
            self.assertGreater(proxy.succeeded.total(), 500)
            self.assertGreater(proxy.changed, 5)
            self.assertEqual(crashes, [], f"seed {SEED}")
            self.assertIsNone(daemon.process.poll())
            self.assertEqual(self.crashed, [], f"seed {SEED}")

    def test_hostile_clients(self):
        self.beside_honest_programs(requests=0.002, more=0.1)

    def test_hostile_servers(self):
        self.beside_honest_programs(answers=0.01)


if __name__ == "__main__":
    testing.main()
