"""A session of a client that is made by hand."""

import struct
import time

import fargpu_testing as testing

HOST_CALL, HOST_CALL_DONE, FETCH = 5, 6, 14
PATIENCE = 2  # for one call; a worker shows that it lives as often


class Connection:
    """A session's, without another transport."""

    def __init__(self, daemon, opcode=testing.HELLO, **hello):
        self.socket = daemon.connect()
        self.socket.settimeout(10)
        self.sequence, self.later = 0, {}
        self.on_fetch = lambda body: None  # the worker asks for bytes that it has been promised
        result, self.welcome = self.call(opcode, testing.hello_body(**hello))
        if result != 0:
            raise EOFError("refused")

    def call(self, opcode, body=b"", bulk=b"", context=0):
        """(result, body of the answer); EOFError or OSError: the session is over."""
        return self.send(opcode, testing.WANT_REPLY, context, 0, body, bulk)

    def send(self, opcode, flags, context, result, body, bulk):
        """The same of a frame whose header may be wrong."""
        self.sequence += 1
        sequence = self.sequence
        self.socket.sendall(
            testing.frame(opcode, body, bulk, flags, sequence, context=context, result=result)
        )
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            header, answer, _ = testing.receive_frame(self.socket)
            if header[1] == HOST_CALL and len(answer) >= 16:
                done = struct.pack("<IHH", 0, 1, 0) + answer[8:16]
                self.socket.sendall(testing.frame(HOST_CALL_DONE, done, flags=0))
            elif header[1] == FETCH:
                self.on_fetch(answer)
            elif header[4] in self.later:
                self.later.pop(header[4])(header[7])
            elif header[2] & testing.REPLY and header[4] == sequence:
                return header[7], answer
        raise TimeoutError("it waits for work that does not end")

    def post(self, opcode, body, bulk, answered):
        """Without waiting; `answered` is called with the result."""
        self.sequence += 1
        self.later[self.sequence] = answered
        self.socket.sendall(testing.frame(opcode, body, bulk, sequence=self.sequence))

    def close(self):
        self.socket.close()
