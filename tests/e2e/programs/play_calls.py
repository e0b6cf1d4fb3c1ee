"""Makes the driver calls of a sequence (tests/e2e/sequences): play_calls.py FILE STEPS.

A line is a call with its arguments: numbers; names of values that earlier lines made, perhaps with
an offset (`memory+64`); `&name`, which the call fills in; `"text"`; `[a b]`, the parameters of a
kernel; `nodes[i]`, of an array. `65x CALL` makes a call 65 times, with i from 0 on. Lines that are
no call: `heap NAME BYTES` (pageable memory), `array NAME COUNT`, `words NAME WORD...` (a structure
of words of 32 bits, and as many zeros behind them), `kernel_node NAME FUNCTION [a b]`
(CUDA_KERNEL_NODE_PARAMS). `ptx` is an image with a kernel `empty` of two parameters, `nothing` a
host function."""

import ctypes
import pathlib
import re
import struct
import sys

import yaml

PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 b)
{
  ret;
}
"""
TOKEN = re.compile(r'"[^"]*"|\[[^]]*\]|[^\s\[]+(?:\[i\])?')


class Player:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.kept = [ctypes.create_string_buffer(PTX)]
        nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        self.values = {
            "ptx": ctypes.c_uint64(ctypes.addressof(self.kept[0])),
            "nothing": ctypes.c_uint64(nothing.value),
        }

    def keep(self, data):
        buffer = ctypes.create_string_buffer(data, len(data))
        self.kept.append(buffer)
        return ctypes.addressof(buffer)

    def value(self, token, i):
        if token.startswith('"'):
            return self.keep(token[1:-1].encode() + b"\0")
        if token.startswith("["):
            parts = [struct.pack("=Q", self.value(each, i)) for each in token[1:-1].split()]
            return self.keep(b"".join(struct.pack("=Q", self.keep(part)) for part in parts))
        if token.startswith("&"):
            made = self.values.setdefault(token[1:], ctypes.c_uint64())
            return ctypes.addressof(made)
        if token.endswith("[i]"):
            return self.values[token[:-3]][i]
        name, _, offset = token.partition("+")
        if name in self.values:
            made = self.values[name]
            base = made.value if isinstance(made, ctypes.c_uint64) else ctypes.addressof(made)
            return base + int(offset or 0)
        return int(token, 0)

    def play(self, line):
        times, i_from = re.match(r"(?:(\d+)x )?", line), 0
        tokens = TOKEN.findall(line[times.end() :])
        for i in range(i_from, int(times[1] or 1)):
            self.play_once(tokens, i)

    def play_once(self, tokens, i):
        name, *arguments = tokens
        if name == "heap":
            self.values[arguments[0]] = ctypes.c_uint64(self.keep(bytes(int(arguments[1]))))
        elif name == "words":
            words = [self.value(each, i) for each in arguments[1:]]
            self.values[arguments[0]] = ctypes.c_uint64(
                self.keep(struct.pack(f"={2 * len(words)}I", *words, *[0] * len(words)))
            )
        elif name == "array":
            self.values[arguments[0]] = (ctypes.c_uint64 * int(arguments[1]))()
        elif name == "kernel_node":
            function, parameters = (self.value(each, i) for each in arguments[1:])
            node = struct.pack("=Q7I4xQQQQ", function, *[1] * 6, 0, parameters, 0, 0, 0)
            self.values[arguments[0]] = ctypes.c_uint64(self.keep(node))
        else:
            call = getattr(self.driver, name)
            result = call(*(ctypes.c_uint64(self.value(each, i)) for each in arguments))
            if result != 0:
                sys.exit(f"{' '.join(tokens)}: error {result}")


def main():
    sequence = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    player = Player()
    for line in sequence["before"].splitlines():
        player.play(line)
    for _ in range(int(sys.argv[2])):
        for line in sequence["step"].splitlines():
            player.play(line)


if __name__ == "__main__":
    main()
