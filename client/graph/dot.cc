#include "client/graph/dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "client/object/image_records.h"
#include "client/process/process.h"
#include "client/process/tables.h"
#include "common/base/descriptors.h"

namespace fargpu::client {
namespace {

const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "WAIT_EVENT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "NODE";
  }
}

// Inside quotes.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string function_name(uint64_t id) {
  const HandleTable& handles = Process::get().tables()->handles;
  const Object* const found = handles.find(rpc::handle_kind(id), id);
  return found == nullptr ? std::string("?") : static_cast<const Function*>(found)->name;
}

class Writer {
 public:
  Writer(std::string& out, unsigned flags) : out_(out), flags_(flags) {}

  void write(const Graph& graph, std::string_view prefix) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const GraphNode& node = *graph.nodes[i];
      const std::string name = fmt::format("{}_{}", prefix, i);
      print("\"{}\" [shape=box label=\"{}\"]\n", name, label(node, i));
      for (const GraphEdge& edge : node.after) {
        const size_t other = static_cast<size_t>(
            std::find(graph.nodes.begin(), graph.nodes.end(), edge.node) - graph.nodes.begin());
        const bool programmatic = edge.data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        print("\"{}\" -> \"{}_{}\"{}\n", name, prefix, other,
              programmatic ? " [style=dashed]" : "");
      }
      for (size_t k = 0; k < node.inside.size(); ++k) {
        const std::string body = fmt::format("{}_{}", name, k);
        print("subgraph \"cluster_{}\" {{\nlabel=\"{}\"\n", body, body);
        write(*node.inside[k], body);
        print("}}\n");
      }
    }
  }

 private:
  template <typename... Values>
  void print(fmt::format_string<Values...> text, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Values>(values)...);
  }
  bool wants(unsigned flag) const {
    return (flags_ & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
  }

  std::string label(const GraphNode& node, size_t number) const {
    std::string text = fmt::format("{}\\n{}", number, type_name(node.params.type()));
    const CUgraphNodeParams& given = node.params.get();
    if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) text += fmt::format("\\nnode 0x{:x}", node.id);
    switch (node.params.type()) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        text += "\\n" + escaped(function_name(node.params.function()));
        if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
          text += fmt::format("\\n<<<{{{}, {}, {}}}, {{{}, {}, {}}}, {}>>>", given.kernel.gridDimX,
                              given.kernel.gridDimY, given.kernel.gridDimZ, given.kernel.blockDimX,
                              given.kernel.blockDimY, given.kernel.blockDimZ,
                              given.kernel.sharedMemBytes);
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
          text += fmt::format("\\n{} x {} x {} bytes", given.memcpy.copyParams.WidthInBytes,
                              given.memcpy.copyParams.Height, given.memcpy.copyParams.Depth);
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        if (wants(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
          text += fmt::format("\\n0x{:x} at 0x{:x}, {} x {} elements of {} bytes",
                              given.memset.value, given.memset.dst, given.memset.width,
                              given.memset.height, given.memset.elementSize);
        break;
      default:
        break;
    }
    return text;
  }

  std::string& out_;
  const unsigned flags_;
};

}  // namespace

CUresult write_dot(const Graph& graph, const char* path, unsigned flags) {
  std::string text = "digraph dot {\n";
  Writer(text, flags).write(graph, "graph");
  text += "}\n";
  const descriptors::StandardTaken taken;
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace fargpu::client
