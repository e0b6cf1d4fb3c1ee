// Peer access: within one server the driver's own; between two servers there is none.
#include <algorithm>

#include "client/manual/common.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

// Both are devices, of two servers. Where they are not, the call goes to the server, which refuses
// what is no device.
bool are_apart(CUdevice first, CUdevice second) {
  const Process& process = Process::get();
  const Session *const one = process.session_of_device(first), *const other =
                                                                   process.session_of_device(
                                                                       second);
  return one != nullptr && other != nullptr && one != other;
}

// A live context of another server than the current one's.
bool is_elsewhere(const Session& session, CUcontext handle) {
  const Context* const context = home_of(session.contexts.find(handle));
  return context != nullptr && context->session != &session && context->usable();
}

}  // namespace

CUresult manual_cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (canAccessPeer != nullptr && are_apart(dev, peerDev)) {
    *canAccessPeer = 0;
    return CUDA_SUCCESS;
  }
  const CallTarget target = CallTarget::of_device(dev);
  return call_cuDeviceCanAccessPeer(target.session, target.context, canAccessPeer, dev, peerDev);
}

CUresult manual_cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib,
                                        CUdevice srcDevice, CUdevice dstDevice) {
  if (value != nullptr && are_apart(srcDevice, dstDevice)) {
    if (attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
      return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
  }
  const CallTarget target = CallTarget::of_device(srcDevice);
  return call_cuDeviceGetP2PAttribute(target.session, target.context, value, attrib, srcDevice,
                                      dstDevice);
}

CUresult manual_cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                                 const CUatomicOperation* operations,
                                                 unsigned int count, CUdevice srcDevice,
                                                 CUdevice dstDevice) {
  if (capabilities != nullptr && operations != nullptr && are_apart(srcDevice, dstDevice)) {
    std::fill_n(capabilities, count, 0u);
    return CUDA_SUCCESS;
  }
  const CallTarget target = CallTarget::of_device(srcDevice);
  return call_cuDeviceGetP2PAtomicCapabilities(target.session, target.context, capabilities,
                                               operations, count, srcDevice, dstDevice);
}

CUresult manual_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  const CallTarget target = CallTarget::of_current();
  if (is_elsewhere(target.session, peerContext))
    return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return call_cuCtxEnablePeerAccess(target.session, target.context, peerContext, Flags);
}

CUresult manual_cuCtxDisablePeerAccess(CUcontext peerContext) {
  const CallTarget target = CallTarget::of_current();
  if (is_elsewhere(target.session, peerContext)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  return call_cuCtxDisablePeerAccess(target.session, target.context, peerContext);
}

}  // namespace fargpu::client
