"""Whole sessions of a client that knows the calls and means no good: objects made, used, freed and
used again, sizes and orders of all kinds, two sessions of one job, management sessions. A worker
may refuse calls and end its session; it must not crash, nor leave anything, and honest programs
beside it are right.

  FARGPU_FUZZ_SECONDS (12), FARGPU_FUZZ_SEED repeat or prolong a run; the last lines say how often
  each call has succeeded and was refused."""

import collections
import functools
import random
import threading
import time
import unittest

import campaign
import fargpu_testing as testing
from calls import Calls, Message, Objects
from campaign import SEED
from connection import Connection
from management import Management, Session

SECONDS = campaign.seconds(12)
MANAGING = 2  # seconds of management sessions in turn
# They end, or hold, the whole session by what they are for.
SELDOM = {"fgHostCall", "fgContextDestroy", "fgGreenDestroy", "fgPrimaryRelease", "fgFetched"}
SELDOM |= {"fgDelivered", "fgGraphUpdatable", "fgContextCreate", "fgImagePutPacked"}
SELDOM |= {"cuStreamWaitValue32_v2", "cuStreamWaitValue64_v2", "cuStreamBatchMemOp_v2"}
SELDOM |= {"cuMemPoolSetAttribute", "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"}
SELDOM |= {
    "cuTensorMapEncodeIm2colWide",
    "fgLaunchMultiDevice",
    "cuPointerSetAttribute",
    "cuDeviceGetDefaultMemPool",
}


class Fuzzer:
    def __init__(self, daemon, counts, number):
        self.daemon, self.counts, self.calls = daemon, counts, counts.calls
        self.random = random.Random(SEED * 64 + number)
        self.waited = collections.Counter()
        self.broken = self.sessions = 0
        self.done = False
        self.weights = [self.weight(f) for f in self.calls.all]

    @staticmethod
    def weight(function):
        if function.name in SELDOM:
            return 0.02
        return 3 if any(field.creates for field in function.request_fields) else 1

    def cuda(self, **hello):
        connection = Connection(self.daemon, **hello)
        self.sessions += 1
        objects = Objects(self.calls, self.random)
        try:
            body = self.calls.layouts.encode("FgPrimaryRetainParams", {"dev": 0})
            connection.call(self.calls.opcode["fgPrimaryRetain"], body)
            for name in ("cuMemAlloc_v2", "fgImagePut", "fgImageUploaded", "fgModuleLoad"):
                self.one(connection, objects, self.calls.by_name[name])
            for _ in range(self.random.choice((20, 100, 400))):
                function = self.random.choices(self.calls.all, self.weights)[0]
                self.one(connection, objects, function)
        finally:
            connection.close()

    def one(self, connection, objects, function):
        message = Message(function, objects)
        context = 1 if self.random.random() < 0.95 else self.random.choice((0, 2, 1024, 65535))
        opcode = self.calls.opcode[function.name]
        try:
            result, body = connection.call(opcode, message.body(), message.bulk, context)
        except (OSError, EOFError) as error:
            if isinstance(error, TimeoutError):
                self.waited[function.name] += 1
            else:
                self.counts.refused[function.name] += 1
                self.broken += 1
            raise
        (self.counts.refused if result else self.counts.succeeded)[function.name] += 1
        if result == 0:
            message.answered(body)

    def two_of_a_job(self):
        """They show the same key: what one exports the other may open."""
        key = '0x"' + self.random.randbytes(16).hex() + '"'
        with_key = {"jobKey": key}
        first = threading.Thread(target=self.quietly, args=(lambda: self.cuda(**with_key),))
        first.start()
        self.quietly(lambda: self.cuda(**with_key))
        first.join()

    def management(self):
        end = time.monotonic() + MANAGING
        while time.monotonic() < end:
            self.sessions += 1
            session = Session(self.daemon, self.counts, self.random)
            self.quietly(functools.partial(session.run, self.random.choice((20, 100, 400))))

    def quietly(self, work):
        try:
            work()
        except (OSError, EOFError, AssertionError):
            pass

    def run(self, goes_on):
        kinds = (self.cuda, self.cuda, self.cuda, self.two_of_a_job, self.management)
        while goes_on():
            self.quietly(self.random.choice(kinds))
        self.done = True


class Sessions(unittest.TestCase):
    def test_hostile_sessions(self):
        calls = Calls()
        flags = ("--max-memory-per-job", "64M", "--host-memory-per-session", "256M")
        print(f"seed {SEED}", flush=True)
        counts = campaign.Counts(calls, Management(calls.layouts))
        with testing.Daemon(*flags, "--job-grace", "1s") as daemon:
            run = campaign.Campaign(daemon, SECONDS)
            fuzzers = [Fuzzer(daemon, counts, number) for number in range(3)]
            targets = [functools.partial(each.run, run.goes_on) for each in fuzzers]
            honest = run.run_beside(self, targets, limit=60)
            self.assertTrue(all(f.done for f in fuzzers))
            testing.wait_until(lambda: not daemon.workers(), "no worker is left", 40)
            counts.report()
            print("waited:", dict(sum((f.waited for f in fuzzers), collections.Counter())))
            print(
                f"{sum(f.sessions for f in fuzzers)} sessions, "
                f"{sum(f.broken for f in fuzzers)} ended by the server, {honest} honest programs"
            )
            self.assertEqual(run.crashes(), [], f"seed {SEED}")
            self.assertIsNone(daemon.process.poll())
            # It is no good if it does not get anywhere.
            self.assertGreater(counts.succeeded.total(), 200)
            self.assertGreater(counts.refused.total(), 100)


if __name__ == "__main__":
    testing.main()
