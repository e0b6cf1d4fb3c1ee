"""A worker that was taken over: `lying_worker.py WORKER MARK [arguments]` in the place of
fargpu-worker. The first session, which makes the file MARK, lies to the daemon about images
(schema/worker.capnp, from findImage on), without a pause and without an end; all else is the real
worker's."""

import os
import random
import socket
import struct
import sys

CONTROL = 4
HEADER = "<HHHHIIQiI"
PROBE, STARTED, FIND, BEGIN, KEEP, END = 2, 3, 16, 17, 18, 19


def message(kind, sequence, body):
    return struct.pack(HEADER, 0x4746, kind, 2, 0, sequence, len(body), 0, 0, 0) + body


def number(value):
    """A message's only field, a number."""
    return struct.pack("<IHHQ", 0, 1, 0, value)


def data(value):
    return struct.pack("<IHHII", 0, 0, 1, 1, len(value) << 3 | 2) + value


def lie(control):
    control.send(message(STARTED, 0, struct.pack("<IHHQQ", 0, 1, 1, 5, 0)))
    dice = random.Random(7)
    while True:
        upload = dice.randrange(40)
        sizes = (0, 1, 5000, 1 << 20, 1 << 40, (1 << 64) - 1)
        hashes = (bytes(32), dice.randbytes(32))
        lies = (
            (FIND, data(dice.choice(hashes))),
            (BEGIN, number(dice.choice(sizes))),
            (KEEP, data(dice.choice(hashes))),
            (END, b""),
        )
        kind, body = dice.choice(lies)
        # With descriptors that nobody has asked for.
        given = [CONTROL] if dice.random() < 0.01 else []
        socket.send_fds(control, [message(kind, upload, body)], given)


def main():
    worker, mark, *arguments = sys.argv[1:]
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(CONTROL))
    kind = struct.unpack(HEADER, control.recv(1 << 16, socket.MSG_PEEK)[:32])[1]
    if kind != PROBE:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            kind = PROBE
    if kind == PROBE:
        control.close()
        os.execv(worker, [worker, *arguments])
    lie(control)


main()
