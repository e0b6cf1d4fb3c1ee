// A random program, as data: what several threads, in one process or two, do with streams, events
// and buffers of one device.
//
// A buffer is a row of segments; an operation writes or reads whole segments. Every writing
// operation writes a value of its own into each word, so that a read tells whose word it saw.
// Operations stand in one list in an order in which they may be generated: a thread does its own in
// this order, and waits for others only where an operation says so. What a graph does stands in a
// list of its nodes, and happens at each launch.
//
// The host uses managed memory only while no device code runs that might, as CUDA demands where
// devices have no concurrent access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fargpu::hunt {

enum class Memory { kDevice, kPageable, kPinned, kRegistered, kMapped, kManaged };

struct Buffer {
  Memory memory = Memory::kDevice;
  size_t segments = 0;
  size_t words = 0;     // of a segment, four bytes each
  int process = 0;      // whose it is
  bool shared = false;  // device memory that the other process opens
};

enum class Kind {
  kFill,          // a kernel writes `value` into the segments at `to`
  kKernelCopy,    // a kernel copies words from `from` to `to`
  kMemset,        // cuMemsetD32Async, of device memory
  kCopyAsync,     // cuMemcpyAsync
  kCopy,          // cuMemcpy: in the legacy default stream
  kCopy2D,        // cuMemcpy2D: a row a segment, with the strides of the places
  kHostWrite,     // the thread writes
  kHostRead,      // the thread reads, and what it sees is checked
  kHostFunction,  // a host function in the stream writes, or reads and checks
  kSpin,          // a kernel that takes `value` microseconds
  kRecord,        // of `event`
  kWaitEvent,     // the stream waits for `event`
  kEventSync,
  kStreamSync,
  kContextSync,
  kNewStream,    // destroys the stream, whose work goes on, and makes another one in its place
  kNewEvent,     // the same of the event
  kLoad,         // loads an image, runs a kernel of it, unloads it
  kScratch,      // allocates pinned and device memory, copies there and back, frees both
  kSideContext,  // makes a second context, works in it, destroys it
  kPost,         // thread `thread` lets those waiting for `token` go on
  kAwait,
  kInstantiate,  // graph `graph` becomes executable; a launch does it where nothing else did
  kLaunch,       // of graph `graph`
  kUpload,       // the same executable graph
  kSetParams,    // node `node` of the executable graph gets `value` and the places `to`, `from`
  kUpdate,       // cuGraphExecUpdate: all its nodes get new values, from `value` on
  kDropGraph,    // destroys the executable graph, whose launches go on; no launch follows
};

// `count` segments, each `stride` after the one before.
struct Place {
  int buffer = -1;
  size_t segment = 0;
  size_t count = 0;
  size_t stride = 1;
};

enum class NodeKind {
  kFill,
  kCounted,
  kKernelCopy,
  kMemset,
  kCopy,
  kHost,
  kEmpty,
  kChild,
  kRecord,
  kWait
};

// A node of a graph. A counted fill (kCounted) and a host node that writes add to their value how
// often they have run, so that every launch writes something else.
struct Node {
  NodeKind kind = NodeKind::kEmpty;
  std::vector<int> after;  // nodes of the same level, with smaller numbers
  int inside = -1;         // the child node that it is in; those of a child directly follow it
  int lane = 0;            // where the graph is captured: which of its streams
  int event = 0;
  uint32_t value = 0;
  Place to{}, from{};
  bool reads = false;      // kHost
  bool kept = true;        // shrinking clears it
  size_t version = kMade;  // of node_at(): the operation that gave it these values

  static constexpr size_t kMade = SIZE_MAX;
};

// A graph and the one executable graph that is made of it. All calls about it are one thread's.
struct Graph {
  static constexpr int kLanes = 3;
  int thread = 0;
  bool captured = false;  // from streams, one of which is the origin; otherwise built node by node
  bool quiet = false;     // a chain whose host nodes may use managed memory
  std::vector<Node> nodes;
};

struct Operation {
  Kind kind = Kind::kHostRead;
  int thread = 0;
  int stream = 0;  // index into Program::streams
  int event = 0;
  int token = 0;
  uint32_t value = 0;
  Place to{}, from{};
  bool reads = false;  // kHostFunction
  uint32_t hold = 0;   // kHostFunction: it takes this many milliseconds
  int graph = -1, node = -1;
};

struct Program {
  static constexpr int kLegacy = 0;  // the first streams are the legacy default ones of processes
  uint64_t seed = 0;
  int processes = 1;    // with two, thread t runs in process t % 2
  bool leaves = false;  // the second process ends without closing or freeing anything
  int threads = 1;
  int streams = 1;
  std::vector<bool> blocking;  // by stream: created without CU_STREAM_NON_BLOCKING
  std::vector<int> stream_process;
  int events = 1;
  std::vector<int> event_process;
  std::vector<bool> event_shared;  // the other process opens it
  int tokens = 0;
  size_t image_bytes = 0;  // at least; of the image that kLoad loads, which no cache knows
  std::vector<Buffer> buffers;
  std::vector<Graph> graphs;
  std::vector<Operation> operations;
  std::vector<bool> kept;  // by operation: it takes part; shrinking clears entries

  int process_of(int thread) const { return thread % processes; }
  bool is_legacy(int stream) const { return stream < processes; }
};

Program generate(uint64_t seed);

// Leaves out an operation or, counted on behind the operations, a node of a graph: what came after
// the node comes after what it came after. False: there is none of that number.
bool leave_out(Program& program, size_t number);

// The node as launch `operation` runs it, or as a change `operation` leaves it.
Node node_at(const Program& program, size_t operation, int node);
// Whether each launch adds to what the node writes.
inline bool counts(const Node& node) {
  return node.kind == NodeKind::kCounted || (node.kind == NodeKind::kHost && !node.reads);
}
// The launches of a graph, in the order in which they are made.
std::vector<size_t> launches_of(const Program& program, int graph);

// Whether the device, or this process, may touch the memory directly.
inline bool on_device(Memory memory) {
  return memory == Memory::kDevice || memory == Memory::kMapped || memory == Memory::kRegistered ||
         memory == Memory::kManaged;
}
// At any time, which is not so of managed memory.
inline bool on_host(Memory memory) {
  return memory != Memory::kDevice && memory != Memory::kManaged;
}

// The program as text, an operation a line, and for an operation alone.
std::string describe(const Program& program, size_t operation);
std::string describe(const Program& program);

}  // namespace fargpu::hunt
