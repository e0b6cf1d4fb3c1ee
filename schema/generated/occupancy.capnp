# Messages of occupancy. Made by `apigen generate` from api/driver/occupancy.yml; do not edit.
@0xd6e00ed1d405dfc3;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuOccupancyMaxActiveBlocksPerMultiprocessorWithFlagsParams {
  func @0 :UInt64;  # CUfunction
  blockSize @1 :Int32;  # int
  dynamicSMemSize @2 :UInt64;  # size_t
  flags @3 :UInt32;  # unsigned int
}

struct CuOccupancyMaxActiveBlocksPerMultiprocessorWithFlagsResults {
  numBlocks @0 :Int32;  # int*
}

struct CuOccupancyAvailableDynamicSMemPerBlockParams {
  func @0 :UInt64;  # CUfunction
  numBlocks @1 :Int32;  # int
  blockSize @2 :Int32;  # int
}

struct CuOccupancyAvailableDynamicSMemPerBlockResults {
  dynamicSmemSize @0 :UInt64;  # size_t*
}

struct CuOccupancyMaxPotentialClusterSizeParams {
  func @0 :UInt64;  # CUfunction
  config @1 :Data;  # const CUlaunchConfig*
  configAttrs @2 :Data;  # const CUlaunchAttribute*
}

struct CuOccupancyMaxPotentialClusterSizeResults {
  clusterSize @0 :Int32;  # int*
}

struct CuOccupancyMaxActiveClustersParams {
  func @0 :UInt64;  # CUfunction
  config @1 :Data;  # const CUlaunchConfig*
  configAttrs @2 :Data;  # const CUlaunchAttribute*
}

struct CuOccupancyMaxActiveClustersResults {
  numClusters @0 :Int32;  # int*
}
