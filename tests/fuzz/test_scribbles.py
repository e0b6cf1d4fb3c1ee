"""Sessions over shared memory in which one end writes what it likes into the memory of both: a
hostile client, then a hostile server. The conformance programs are that client, or have that
server; from outside, the rings' words and the frames in them are changed. A worker may end its
session, and a program may fail in any way, but neither may crash; honest programs beside them are
right.

  FARGPU_FUZZ_SECONDS (8, of each test), FARGPU_FUZZ_SEED repeat or prolong a run."""

import random
import threading
import time
import unittest

import campaign
import fargpu_testing as testing
from calls import Calls
from campaign import SEED
from programs import Programs
from scribbles import Memory, Scribbler

SECONDS = campaign.seconds(8)


class Scribbles(unittest.TestCase):
    def scribble(self, program, to_server):
        """Waits for the program's session, and changes its memory until it ends."""
        while program.poll() is None and self.campaign.goes_on():
            time.sleep(0.005)
            try:
                memory = Memory(program.pid)
            except OSError:
                continue
            found = memory.rings()
            memory.close()
            worker = self.daemon.worker_of(program.pid) if found else None
            if worker is None:
                continue
            victim = worker if to_server else program.pid
            chooser = random.Random(SEED + self.sessions)
            self.sessions += 1
            try:
                scribbler = Scribbler(self.calls, chooser, program.pid, victim, to_server)
                scribbler.run(self.campaign.goes_on)
                self.changed += scribbler.changed
                self.frames += scribbler.frames
            except OSError:
                pass
            return

    def hostile(self, to_server):
        flags = ("--max-memory-per-job", "256M", "--host-memory-per-session", "512M")
        print(f"seed {SEED}", flush=True)
        self.calls = Calls()
        self.sessions = self.changed = self.frames = 0
        scribblers = []

        def beside(program):
            thread = threading.Thread(target=self.scribble, args=(program, to_server))
            thread.start()
            scribblers.append(thread)

        with testing.Daemon(*flags, "--job-grace", "1s", gpus=2) as self.daemon:
            self.campaign = campaign.Campaign(self.daemon, SECONDS)
            of_server = ("--server", self.daemon.server, "--transport", "shm")
            programs = Programs(self.campaign, *of_server, beside=beside)
            honest = self.campaign.run_beside(self, programs.runs(SEED), pause=0.2)
            for thread in scribblers:
                thread.join()
            testing.wait_until(lambda: not self.daemon.workers(), "no worker is left", 60)
            broken = self.daemon.log_text().count("event=session-broken")
            print(
                f"{programs.ends.total()} programs ended with {dict(programs.ends)}, "
                f"{honest} honest ones; {self.sessions} sessions, {broken} broken, "
                f"{self.frames} frames and {self.changed} words changed"
            )
            self.assertEqual(self.campaign.crashes(), [], f"seed {SEED}")
            self.assertIsNone(self.daemon.process.poll())
            self.assertEqual(programs.crashed, [], f"seed {SEED}")
            # It is no good if it does not get anywhere.
            self.assertGreater(self.changed, 20)
            self.assertGreater(self.frames, 5)

    def test_hostile_clients(self):
        self.hostile(to_server=True)

    def test_hostile_servers(self):
        self.hostile(to_server=False)


if __name__ == "__main__":
    testing.main()
