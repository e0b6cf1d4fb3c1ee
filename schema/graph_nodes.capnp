@0xb7f4c1a92d3e6058;
# A CUDA graph as the client describes it to the worker: bulk bytes of fgGraphInstantiate,
# fgGraphUpdate and fgGraphSetNode (schema/api/internal.yml), one Cap'n Proto segment. The worker
# checks all of it. Fields are added at the end; one that the sender does not know reads as 0.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema::graph");

struct Nodes {
  nodes @0 :List(Node);
  # Of a graph that the worker has before it is described (fgGraphAllocate): the client's id of each
  # node, by which the worker knows it again. A copy with a host call is two nodes with one id.
  ids @1 :List(UInt64);
}

struct Node {
  dependencies @0 :List(UInt32);  # by their number in this list, all smaller than this node's
  edges @1 :Data;                 # a CUgraphEdgeData for each; empty: all are zero
  context @2 :UInt16;             # wire id; 0: it needs none
  union {
    empty @3 :Void;
    kernel @4 :Kernel;
    copy @5 :Data;                # CUDA_MEMCPY3D of device memory and arrays by their ids
    fill @6 :Data;                # CUDA_MEMSET_NODE_PARAMS_v1
    host @7 :Void;                # a host call
    child @8 :Nodes;
    recordEvent @9 :UInt64;       # id
    waitEvent @10 :UInt64;
    operations @11 :Operations;
    allocation @12 :UInt32;       # the number that fgGraphAllocate gave it
    free @13 :UInt64;             # address
    conditional @14 :Conditional;
    movedChild @15 :MovedChild;
    updatable @16 :Updatable;
  }
}

struct Kernel {
  function @0 :UInt64;            # id of a function or a kernel
  gridX @1 :UInt32; gridY @2 :UInt32; gridZ @3 :UInt32;
  blockX @4 :UInt32; blockY @5 :UInt32; blockZ @6 :UInt32;
  sharedBytes @7 :UInt32;
  parameters @8 :Data;            # packed
  attributes @9 :Data;            # CUlaunchAttribute, none of which holds a pointer
}

struct Operations { flags @0 :UInt32; operations @1 :Data; }  # CUstreamBatchMemOpParams

# A kernel node that kernels update.
struct Updatable {
  number @0 :UInt32;              # that fgGraphUpdatable gave it
  kernel @1 :Kernel;
}

# A child that allocates or frees memory, which only the graph itself can do, not a copy of it.
struct MovedChild {
  graph @0 :UInt64;               # id, when it has allocations (fgGraphAllocate); 0: none
  nodes @1 :Nodes;
}

struct Conditional {
  handle @0 :UInt64;              # as fgGraphConditional gave it
  type @1 :Int32;                 # CUgraphConditionalNodeType
  bodies @2 :List(Nodes);
}
