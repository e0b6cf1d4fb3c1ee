"""Programs of all calls whose server means no good: some of the answers and notices are changed on
their way. A client may fail in any way but a crash; honest programs beside it are right.

  FARGPU_FUZZ_SECONDS (12), FARGPU_FUZZ_SEED repeat or prolong a run."""

import random
import unittest

import campaign
import fargpu_testing as testing
from calls import Calls
from campaign import SEED
from mutations import Proxy
from programs import Programs

SECONDS = campaign.seconds(12)


class Mutations(unittest.TestCase):
    def test_hostile_servers(self):
        flags = ("--max-memory-per-job", "256M", "--host-memory-per-session", "512M")
        print(f"seed {SEED}", flush=True)
        with testing.Daemon(*flags, "--job-grace", "1s", gpus=2) as daemon:
            with Proxy(daemon, Calls(), random.Random(SEED), answers=0.01) as proxy:
                run = campaign.Campaign(daemon, SECONDS)
                programs = Programs(run, "--server", proxy.address, "--transport", "tcp")
                honest = run.run_beside(self, programs.runs(SEED), pause=0.2)
                testing.wait_until(lambda: not daemon.workers(), "no worker is left", 60)
            print(
                f"{programs.ends.total()} programs ended with {dict(programs.ends)}, "
                f"{honest} honest ones; {proxy.changed.total()} frames of "
                f"{len(proxy.changed)} kinds changed"
            )
            self.assertEqual(run.crashes(), [], f"seed {SEED}")
            self.assertIsNone(daemon.process.poll())
            self.assertEqual(programs.crashed, [], f"seed {SEED}")
            # It is no good if it does not get anywhere.
            self.assertGreater(proxy.changed.total(), 5)


if __name__ == "__main__":
    testing.main()
