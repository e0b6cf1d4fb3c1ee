"""Programs of all calls whose server means no good: some of the answers and notices are changed on
their way. A client may fail in any way but a crash; honest programs beside it are right.

  FARGPU_FUZZ_SECONDS (12), FARGPU_FUZZ_SEED repeat or prolong a run."""

import collections
import os
import random
import re
import signal
import subprocess
import threading
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

    def run_all(self, proxy, chooser, run, ends):
        """Programs through the proxy as long as it goes on; how they have ended."""
        programs = campaign.programs()
        while run.goes_on():
            program = chooser.choice(programs)
            command = [testing.BUILD.fargpu, "run", "--server", proxy.address]
            command += ["--transport", "tcp", "--no-check", "--", program]
            try:
                done = testing.run(command, timeout=LIMIT, env=self.environment)
            except subprocess.TimeoutExpired:
                ends["time"] += 1
                continue
            ends[done.returncode] += 1
            self.look_at(program, done, run)

    def look_at(self, program, done, run):
        """Whether the client's library is at fault for this end."""
        report = re.search(r"ERROR: AddressSanitizer(.*?)\n\n", done.stderr, re.S)
        is_lost = HOST_MEMORY.search(program.read_bytes())
        if report and re.search(r" \S*/(client|common)/", report[1]):
            if not (is_lost and re.match(": (SEGV|BUS)", report[1])):
                self.crashed.append((program.name, report[0]))
        elif done.returncode in CRASHES and not is_lost:
            self.crashed.append((program.name, done.returncode))
        if self.crashed:
            run.crashed.set()

    def test_hostile_servers(self):
        calls = Calls()
        flags = ("--max-memory-per-job", "256M", "--host-memory-per-session", "512M")
        print(f"seed {SEED}", flush=True)
        ends = collections.Counter()
        with testing.Daemon(*flags, "--job-grace", "1s", gpus=2) as daemon:
            with Proxy(daemon, calls, random.Random(SEED), answers=0.01) as proxy:
                run = campaign.Campaign(daemon, SECONDS)
                threads = [
                    threading.Thread(
                        target=self.run_all, args=(proxy, random.Random(SEED + number), run, ends)
                    )
                    for number in (1, 2)
                ]
                for thread in threads:
                    thread.start()
                honest = run.run_honest(self, pause=0.2)
                for thread in threads:
                    thread.join()
                testing.wait_until(lambda: not daemon.workers(), "no worker is left", 60)
            print(
                f"{ends.total()} programs ended with {dict(ends)}, {honest} honest ones; "
                f"{proxy.changed} frames changed"
            )
            # It is no good if it does not get anywhere.
            self.assertGreater(proxy.changed, 5)
            self.assertEqual(run.crashes(), [], f"seed {SEED}")
            self.assertIsNone(daemon.process.poll())
            self.assertEqual(self.crashed, [], f"seed {SEED}")


if __name__ == "__main__":
    testing.main()
