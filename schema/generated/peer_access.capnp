# Messages of peer context memory access. Made by `apigen generate` from api/driver/peer_access.yml; do not edit.
@0x82df2fe1afcbeef7;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuDeviceCanAccessPeerParams {
  dev @0 :Int32;  # CUdevice
  peerDev @1 :Int32;  # CUdevice
}

struct CuDeviceCanAccessPeerResults {
  canAccessPeer @0 :Int32;  # int*
}

struct CuCtxEnablePeerAccessParams {
  peerContext @0 :UInt64;  # CUcontext
  flags @1 :UInt32;  # unsigned int
}

struct CuCtxDisablePeerAccessParams {
  peerContext @0 :UInt64;  # CUcontext
}

struct CuDeviceGetP2PAttributeParams {
  attrib @0 :Int32;  # CUdevice_P2PAttribute
  srcDevice @1 :Int32;  # CUdevice
  dstDevice @2 :Int32;  # CUdevice
}

struct CuDeviceGetP2PAttributeResults {
  value @0 :Int32;  # int*
}

struct CuDeviceGetP2PAtomicCapabilitiesParams {
  operations @0 :Data;  # const CUatomicOperation*
  count @1 :UInt32;  # unsigned int
  srcDevice @2 :Int32;  # CUdevice
  dstDevice @3 :Int32;  # CUdevice
}

struct CuDeviceGetP2PAtomicCapabilitiesResults {
  capabilities @0 :Data;  # unsigned int*
}
