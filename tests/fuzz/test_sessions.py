"""Whole sessions of a client that knows the calls and means no good: objects made, used, freed and
used again, sizes and orders of all kinds, two sessions of one job, management sessions. A worker
may refuse calls and end its session; it must not crash, nor leave anything, and honest programs
beside it are right.

  FARGPU_FUZZ_SECONDS (20), FARGPU_FUZZ_SEED repeat or prolong a run; the last lines say how often
  each call has succeeded and was refused."""

import collections
import random
import struct
import threading
import time
import unittest

import campaign
import fargpu_testing as testing
from calls import EDGES, Calls, Message, Objects
from campaign import SEED

MANAGE, HOST_CALL, HOST_CALL_DONE = 19, 5, 6
REPLY = 1
SECONDS = campaign.seconds(20)
PATIENCE = 2  # for one call; a worker shows that it lives as often
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


class Connection:
    """A session's, without another transport."""

    def __init__(self, daemon, opcode=testing.HELLO, **hello):
        self.socket = daemon.connect()
        self.socket.settimeout(10)
        self.sequence = 0
        result, self.welcome = self.call(opcode, testing.hello_body(**hello))
        if result != 0:
            raise EOFError("refused")

    def call(self, opcode, body=b"", bulk=b"", context=0):
        """(result, body of the answer); EOFError or OSError: the session is over."""
        self.sequence += 1
        frame = testing.frame(opcode, body, bulk, sequence=self.sequence, context=context)
        self.socket.sendall(frame)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            header, answer, _ = testing.receive_frame(self.socket)
            if header[1] == HOST_CALL and len(answer) >= 16:
                done = struct.pack("<IHH", 0, 1, 0) + answer[8:16]
                self.socket.sendall(testing.frame(HOST_CALL_DONE, done, flags=0))
            elif header[2] & REPLY and header[4] == self.sequence:
                return header[7], answer
        raise TimeoutError("it waits for work that does not end")

    def close(self):
        self.socket.close()


class Fuzzer:
    def __init__(self, daemon, calls, number):
        self.daemon, self.calls = daemon, calls
        self.random = random.Random(SEED * 64 + number)
        self.succeeded, self.refused, self.waited = (collections.Counter() for _ in range(3))
        self.broken = self.sessions = 0
        self.done = False
        self.weights = [self.weight(f) for f in calls.all]

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
                self.refused[function.name] += 1
                self.broken += 1
            raise
        (self.refused if result else self.succeeded)[function.name] += 1
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
        connection = Connection(self.daemon, MANAGE)
        self.sessions += 1
        try:
            for _ in range(30):
                opcode = self.random.randrange(4096, 4200)
                words = [self.random.choice(EDGES) for _ in range(self.random.randrange(6))]
                body = struct.pack("<QQQI4x", 0x0001000100000000, 0, (8 << 3 | 2) << 32 | 1, 0)
                body += struct.pack(f"<{len(words)}Q", *words)
                result, _ = connection.call(opcode, body[: 8 * self.random.randrange(1, 9)])
                (self.refused if result else self.succeeded)["NVML"] += 1
        finally:
            connection.close()

    def quietly(self, work):
        try:
            work()
        except (OSError, EOFError, AssertionError):
            pass

    def run(self, until):
        kinds = (self.cuda, self.cuda, self.cuda, self.two_of_a_job, self.management)
        while time.monotonic() < until:
            self.quietly(self.random.choice(kinds))
        self.done = True


class Sessions(unittest.TestCase):
    def test_hostile_sessions(self):
        calls = Calls()
        flags = ("--max-memory-per-job", "64M", "--host-memory-per-session", "256M")
        print(f"seed {SEED}", flush=True)
        with testing.Daemon(*flags, "--job-grace", "1s") as daemon:
            fuzzers = [Fuzzer(daemon, calls, number) for number in range(3)]
            until = time.monotonic() + SECONDS
            threads = [threading.Thread(target=f.run, args=(until,)) for f in fuzzers]
            for thread in threads:
                thread.start()
            honest = campaign.run_honest(self, daemon, until)
            for thread in threads:
                thread.join(60)
            self.assertTrue(all(f.done for f in fuzzers))
            testing.wait_until(lambda: not daemon.workers(), "no worker is left", 40)
            crashes = campaign.crashes(daemon)
            succeeded = sum((f.succeeded for f in fuzzers), collections.Counter())
            refused = sum((f.refused for f in fuzzers), collections.Counter())
            campaign.report(calls, succeeded, refused)
            print("waited:", dict(sum((f.waited for f in fuzzers), collections.Counter())))
            print(
                f"{sum(f.sessions for f in fuzzers)} sessions, "
                f"{sum(f.broken for f in fuzzers)} ended by the server, {honest} honest programs, "
                f"{len(crashes)} crashes"
            )
            self.assertEqual(crashes, [], f"seed {SEED}")
            self.assertIsNone(daemon.process.poll())
            # It is no good if it does not get anywhere.
            self.assertGreater(sum(succeeded.values()), 500)
            self.assertGreater(sum(refused.values()), 200)


if __name__ == "__main__":
    testing.main()
