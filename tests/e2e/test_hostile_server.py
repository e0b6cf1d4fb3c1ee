"""A server that says of kernels what is not so: the program gets an error, and the server nothing
of the program's memory."""

import struct
import sys

import fargpu_testing as testing
from proxied import Proxied

CALLS = {"FgModuleFunctionResults": "fgModuleFunction", "FgLibraryKernelResults": "fgLibraryKernel"}


def opcode(name):
    registry = (testing.ROOT / "schema/api/registry.yml").read_text()
    return int(registry.split(f"\n{name}: ")[1].split()[0])


def numbers(values):
    return f'0x"{struct.pack(f"<{len(values)}I", *values).hex()}"'


class Kernels(Proxied):
    """The parameters of every kernel are told differently."""

    def run_with(self, kind, lie, program, *arguments):
        """The program behind a server whose layouts lie(offsets, sizes) changes, and the frames of
        launches that it sent."""
        sent = bytearray()

        def change(body):
            told = testing.capnp_decode(kind, bytes(body), schema="generated/internal")
            offsets, sizes = (
                list(struct.unpack(f"<{len(data) // 4}I", data))
                for data in (
                    testing.data_field(told, "parameterOffsets"),
                    testing.data_field(told, "parameterSizes"),
                )
            )
            lie(offsets, sizes)
            attributes = testing.data_field(told, "attributes").hex()
            body[:] = testing.capnp_encode(
                kind,
                f"(parameterCount = {len(sizes)}, parameterOffsets = {numbers(offsets)},"
                f' parameterSizes = {numbers(sizes)}, attributes = 0x"{attributes}")',
                schema="generated/internal",
            )

        with testing.Daemon() as daemon:
            port = self.proxy(daemon, opcode(CALLS[kind]), change, sent)
            done = testing.run(
                [testing.BUILD.fargpu, "run", "--server", f"127.0.0.1:{port}", "--"]
                + [testing.BUILD.program(program), *arguments],
                env=testing.clean_environment(),
            )
        header = struct.pack("<HH", testing.MAGIC, opcode("fgLaunch"))
        return done, header in sent

    def refused(self, kind, lie, program, *arguments):
        done, launched = self.run_with(kind, lie, program, *arguments)
        self.assertGreater(done.returncode, 0, f"no signal: {done.stderr}")
        self.assertLess(done.returncode, 128, f"no signal: {done.stderr}")
        self.assertIn("refused: the server says that kernel", done.stderr)
        self.assertFalse(launched)

    def programs(self):
        """With a module, and with the runtime's libraries."""
        triple = testing.BUILD.program("triple.fatbin")
        yield "FgModuleFunctionResults", "driver_fatbin", triple
        yield "FgModuleFunctionResults", "driver_fatbin", testing.BUILD.program("triple.ptx")
        yield "FgLibraryKernelResults", "scan"

    def test_the_truth_passes(self):
        for kind, *program in self.programs():
            with self.subTest(kind=kind, program=program):
                done, launched = self.run_with(kind, lambda *_: None, *program)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(launched)

    def test_a_longer_parameter_is_refused(self):
        def lengthen(_, sizes):
            sizes[-1] = 2048

        for kind, *program in self.programs():
            with self.subTest(kind=kind, program=program):
                self.refused(kind, lengthen, *program)

    def test_more_parameters_are_refused(self):
        def invent(offsets, sizes):
            offsets[:] = range(0, 400 * 8, 8)
            sizes[:] = [8] * 400

        for kind, *program in self.programs():
            with self.subTest(kind=kind, program=program):
                self.refused(kind, invent, *program)

    def test_fewer_parameters_are_refused(self):
        def forget(offsets, sizes):
            offsets.pop()
            sizes.pop()

        for kind, *program in self.programs():
            with self.subTest(kind=kind, program=program):
                self.refused(kind, forget, *program)


if __name__ == "__main__":
    sys.exit(testing.main())
