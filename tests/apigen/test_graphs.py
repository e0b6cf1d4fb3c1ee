"""Descriptions in the shapes that graphs need: arrays of handles, structs with handles and arrays
inside, objects that the worker names, several inputs beside the message. What is made of them
compiles. Needs a C++ compiler and Cap'n Proto's: --compiler, --capnp, --plugin, --include (headers
of CUDA and Cap'n Proto, once each).
"""

import argparse
import subprocess
import sys
import unittest
from pathlib import Path

from apigen import contracts, generate
from fixture import ROOT, Description

HERE = Path(__file__).resolve().parent
OPTIONS = argparse.Namespace(compiler="c++", capnp="capnp", plugin="c++", include=[])

HANDLES = """handles:
  CUexternalSemaphore: externalsemaphore
"""
STRUCTS = """structs:
  CUgraphEdgeData: {size: 8}
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS: {size: 144}
  CUDA_KERNEL_NODE_PARAMS:
    {size: 72, handles: {func: function, kern: kernel, ctx: context}, clear: [kernelParams, extra]}
  CUDA_BATCH_MEM_OP_NODE_PARAMS:
    {size: 32, handles: {ctx: context},
     arrays: {paramArray: {of: CUstreamBatchMemOpParams, len: count}}}
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS:
    {size: 24, arrays: {extSemArray: {of: CUexternalSemaphore, len: numExtSems},
                        paramsArray: {of: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, len: numExtSems}}}
"""
USE = """#include "generated/server/internal_decode.h"
namespace fargpu::server {
Status manual_fgTwo(Worker& worker, const Request& request) {
  return decode_fgTwo(worker, request, [&](const FgTwoArguments& given) {
    return answer(worker, request, given.first.size() + given.second.size() == 0
                                       ? CUDA_ERROR_INVALID_VALUE
                                       : CUDA_SUCCESS);
  });
}
Status manual_fgMake(Worker& worker, const Request& request) {
  return decode_fgMake(worker, request, [&](const FgMakeArguments& given) {
    const bool right = given.made_id != 0 && given.where != nullptr && given.after[0] != nullptr;
    return answer(worker, request, right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
  });
}
}  // namespace fargpu::server
"""


class Graphs(Description):
    def setUp(self):
        super().setUp()
        types = self.schema / "api" / "types.yml"
        text = types.read_text().replace("handles:\n", HANDLES, 1)
        types.write_text(text.replace("structs:\n", STRUCTS, 1))
        (self.schema / "api" / "internal.yml").write_text(
            (HERE / "graphs_internal.yml").read_text()
        )
        text = (HERE / "graphs.yml").read_text()
        names = [line.split("(")[0].split()[-1] for line in text.splitlines() if "- fn:" in line]
        rows = [f"{name}: {64 + i}\n" for i, name in enumerate([*names, "fgTwo", "fgMake"])]
        (self.schema / "api" / "registry.yml").write_text("".join(rows))
        self.api = self.describe(text)
        self.files = generate.cpp(self.api, self.schema)

    def body(self, path, name):
        """The lines of one generated function."""
        text = self.files[path]
        begin = text.index(f"{name}(")
        return text[begin : text.index("\n}\n", begin)]

    def holds(self, path, name, *lines):
        body = self.body(path, name)
        for line in lines:
            self.assertIn(line, body)

    def test_arrays_of_handles_travel_as_ids(self):
        self.holds(
            "client/work/demo.cc",
            "call_cuGraphAddDependencies_v2",
            "required_to_wire(session_, rpc::HandleKind::kGraphNode, from[i_], "
            "from_ids.data() + i_)",
            "wire::cuGraphAddDependencies_v2(session_, context_, hGraph_id, from_ids.data(), ",
        )
        self.holds(
            "client/wire/demo.cc",
            "cuGraphAddDependencies_v2",
            "const uint64_t* from, const uint64_t* to, ",
            "params_.setTo(as_data(to_in.data(), to_count * sizeof(uint64_t)));",
        )
        self.holds(
            "server/demo_dispatch.cc",
            "dispatch_cuGraphAddDependencies_v2",
            'malformed("cuGraphAddDependencies_v2", "from has the wrong size")',
            "find_handles(worker_, rpc::HandleKind::kGraphNode, from_ids, from.data())",
            "driver_(hGraph, from.data(), to.data(), ",
        )

    def test_structs_travel_with_what_they_point_to(self):
        self.holds(
            "client/work/demo.cc",
            "call_cuGraphAddKernelNode_v2",
            "optional_to_wire(session_, rpc::HandleKind::kKernel, element.kern, &id_)",
            "phGraphNode_new.created(hGraph_id);",
        )
        self.holds(
            "client/wire/demo.cc",
            "cuGraphAddBatchMemOpNode",
            "element.paramArray = nullptr;",
            "nodeParams == nullptr ? 0 : static_cast<uint64_t>(nodeParams->count)",
        )
        self.holds(
            "client/work/demo.cc",
            "call_cuGraphAddExternalSemaphoresSignalNode",
            "(static_cast<void*>(nodeParams_extSemArray_ids.data()))",
            "(const_cast<void*>(nodeParams_paramsArray_in.data()))",
        )
        self.holds(
            "server/demo_dispatch.cc",
            "dispatch_cuGraphAddBatchMemOpNode",
            "static_cast<uint64_t>(nodeParams.count)",
            "nodeParams.paramArray = nodeParams_paramArray_count == 0 ? nullptr",
        )
        self.holds(
            "server/demo_dispatch.cc",
            "dispatch_cuGraphAddExternalSemaphoresSignalNode",
            "find_handles(worker_, rpc::HandleKind::kExternalSemaphore",
        )
        message = contracts.capnp(self.api.chapters[0], self.api.types)
        self.assertIn("nodeParamsParamArray @5 :Data", message)

    def test_the_worker_names_objects(self):
        self.holds(
            "client/work/demo.cc",
            "call_cuGraphGetNodes",
            "if (numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;",
            "static_cast<uint64_t>((*numNodes))",
            "NewHandles nodes_new(session_, rpc::HandleKind::kGraphNode",
            "nodes == nullptr ? nullptr : nodes_ids.data()",
            "nodes_new.take(nodes_ids.data(), *numNodes, hGraph_id, nodes)",
        )
        self.holds(
            "client/wire/demo.cc",
            "cuGraphGetNodes",
            "if (nodes_have > nodes_count) return malformed",
            "take_data(results_.getNodes(), nodes, nodes_have * sizeof(uint64_t))",
        )
        self.holds(
            "server/demo_dispatch.cc",
            "dispatch_cuGraphGetNodes",
            "name_handles(worker_, rpc::HandleKind::kGraphNode",
        )

    def test_several_inputs_beside_the_message(self):
        self.holds("client/wire/internal.cc", "fgTwo", "const rpc::Bytes bulk_[] = {")
        self.holds(
            "server/internal_decode.h",
            "decode_fgTwo",
            '"second is not all there"',
            '"more bytes than arguments"',
        )

    def test_what_is_made_compiles(self):
        made = {f"generated/{path}": text for path, text in self.files.items()}
        made["use.cc"] = USE
        for chapter in self.api.chapters:
            made[f"generated/schema/{chapter.name}.capnp"] = contracts.capnp(
                chapter, self.api.types
            )
        for path, text in made.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        messages = [self.folder / p for p in made if p.endswith(".capnp")]
        folder = self.folder / "generated" / "schema"
        subprocess.run(
            [
                *(OPTIONS.capnp, "compile", *(f"-I{i}" for i in OPTIONS.include)),
                *(f"--src-prefix={folder}", f"-o{OPTIONS.plugin}:{folder}", *messages),
            ],
            check=True,
        )
        includes = [f"-I{i}" for i in (self.folder, ROOT, *OPTIONS.include)]
        for source in (
            "generated/client/wire/demo.cc",
            "generated/client/wire/internal.cc",
            "generated/client/work/demo.cc",
            "generated/client/work/internal.cc",
            "generated/server/demo_dispatch.cc",
            "use.cc",
        ):
            with self.subTest(source):
                done = subprocess.run(
                    [
                        *(OPTIONS.compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Werror"),
                        *(*includes, self.folder / source),
                    ],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(done.returncode, 0, done.stderr[:4000])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("compiler", "capnp", "plugin"):
        parser.add_argument(f"--{option}", default=getattr(OPTIONS, option))
    parser.add_argument("--include", action="append", default=[])
    OPTIONS, rest = parser.parse_known_args(namespace=OPTIONS)
    unittest.main(argv=[sys.argv[0], *rest])
