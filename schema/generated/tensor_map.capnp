# Messages of tensor maps. Made by `apigen generate` from api/driver/tensor_map.yml; do not edit.
@0x933392c653ba1973;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuTensorMapEncodeTiledParams {
  tensorDataType @0 :Int32;  # CUtensorMapDataType
  tensorRank @1 :UInt32;  # cuuint32_t
  globalAddress @2 :UInt64;  # void*
  globalDim @3 :Data;  # const cuuint64_t*
  globalStrides @4 :Data;  # const cuuint64_t*
  boxDim @5 :Data;  # const cuuint32_t*
  elementStrides @6 :Data;  # const cuuint32_t*
  interleave @7 :Int32;  # CUtensorMapInterleave
  swizzle @8 :Int32;  # CUtensorMapSwizzle
  l2Promotion @9 :Int32;  # CUtensorMapL2promotion
  oobFill @10 :Int32;  # CUtensorMapFloatOOBfill
}

struct CuTensorMapEncodeTiledResults {
  tensorMap @0 :Data;  # CUtensorMap*
}

struct CuTensorMapEncodeIm2colParams {
  tensorDataType @0 :Int32;  # CUtensorMapDataType
  tensorRank @1 :UInt32;  # cuuint32_t
  globalAddress @2 :UInt64;  # void*
  globalDim @3 :Data;  # const cuuint64_t*
  globalStrides @4 :Data;  # const cuuint64_t*
  pixelBoxLowerCorner @5 :Data;  # const int*
  pixelBoxUpperCorner @6 :Data;  # const int*
  channelsPerPixel @7 :UInt32;  # cuuint32_t
  pixelsPerColumn @8 :UInt32;  # cuuint32_t
  elementStrides @9 :Data;  # const cuuint32_t*
  interleave @10 :Int32;  # CUtensorMapInterleave
  swizzle @11 :Int32;  # CUtensorMapSwizzle
  l2Promotion @12 :Int32;  # CUtensorMapL2promotion
  oobFill @13 :Int32;  # CUtensorMapFloatOOBfill
}

struct CuTensorMapEncodeIm2colResults {
  tensorMap @0 :Data;  # CUtensorMap*
}

struct CuTensorMapEncodeIm2colWideParams {
  tensorDataType @0 :Int32;  # CUtensorMapDataType
  tensorRank @1 :UInt32;  # cuuint32_t
  globalAddress @2 :UInt64;  # void*
  globalDim @3 :Data;  # const cuuint64_t*
  globalStrides @4 :Data;  # const cuuint64_t*
  pixelBoxLowerCornerWidth @5 :Int32;  # int
  pixelBoxUpperCornerWidth @6 :Int32;  # int
  channelsPerPixel @7 :UInt32;  # cuuint32_t
  pixelsPerColumn @8 :UInt32;  # cuuint32_t
  elementStrides @9 :Data;  # const cuuint32_t*
  interleave @10 :Int32;  # CUtensorMapInterleave
  mode @11 :Int32;  # CUtensorMapIm2ColWideMode
  swizzle @12 :Int32;  # CUtensorMapSwizzle
  l2Promotion @13 :Int32;  # CUtensorMapL2promotion
  oobFill @14 :Int32;  # CUtensorMapFloatOOBfill
}

struct CuTensorMapEncodeIm2colWideResults {
  tensorMap @0 :Data;  # CUtensorMap*
}

struct CuTensorMapReplaceAddressParams {
  tensorMap @0 :Data;  # CUtensorMap*
  globalAddress @1 :UInt64;  # void*
}

struct CuTensorMapReplaceAddressResults {
  tensorMap @0 :Data;  # CUtensorMap*
}
