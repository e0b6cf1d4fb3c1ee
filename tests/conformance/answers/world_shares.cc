// The world's green contexts, shared memory, sparse arrays, and callbacks of the driver's own.
#include "tests/conformance/answers/answers.h"
#include "tests/conformance/answers/made.h"

namespace answers {
namespace {

constexpr size_t kPhysicalBytes = 2 << 20;

CUgreenCtx make_green(CUdevResourceDesc description) {
  CUgreenCtx green = nullptr;
  need("cuGreenCtxCreate", &green, description, 0, 1u /* CU_GREEN_CTX_DEFAULT_STREAM */);
  return green;
}

CUlogsCallbackHandle make_log_callback() {
  CUlogsCallbackHandle handle = nullptr;
  need("cuLogsRegisterCallback",
       static_cast<CUlogsCallback>([](void*, CUlogLevel, char*, size_t) {}),
       static_cast<void*>(nullptr), &handle);
  return handle;
}

CUasyncCallbackHandle make_notification() {
  CUasyncCallbackHandle handle = nullptr;
  need("cuDeviceRegisterAsyncNotification", 0,
       static_cast<CUasyncCallback>([](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {}),
       static_cast<void*>(nullptr), &handle);
  return handle;
}

CUmemGenericAllocationHandle make_physical(CUmemAllocationHandleType type, unsigned short usage) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = type;
  prop.allocFlags.usage = usage;
  CUmemGenericAllocationHandle handle = 0;
  need("cuMemCreate", &handle, kPhysicalBytes, static_cast<const CUmemAllocationProp*>(&prop),
       0ull);
  return handle;
}

CUmemoryPool make_exportable_pool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  need("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&props));
  return pool;
}

// The descriptor that a function exports `object` as, as an import takes it.
template <typename Object>
void* exported_as(const char* name, Object object) {
  int descriptor = -1;
  need(name, static_cast<void*>(&descriptor), object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
       0ull);
  return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
}

CUmemoryPool import_pool(void* descriptor) {
  CUmemoryPool pool = nullptr;
  need("cuMemPoolImportFromShareableHandle", &pool, descriptor,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
  return pool;
}

CUdeviceptr allocate_from(CUmemoryPool pool) {
  CUdeviceptr address = 0;
  need("cuMemAllocFromPoolAsync", &address, size_t{4096}, pool, CUstream{});
  need("cuCtxSynchronize");
  return address;
}

CUdeviceptr make_managed() {
  CUdeviceptr address = 0;
  need("cuMemAllocManaged", &address, size_t{64} << 10,
       static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
  return address;
}

CUDA_ARRAY3D_DESCRIPTOR describe(size_t width, size_t height, unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = width;
  descriptor.Height = height;
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 1;
  descriptor.Flags = flags;
  return descriptor;
}

CUarray make_array(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  CUarray array = nullptr;
  need("cuArray3DCreate_v2", &array, &descriptor);
  return array;
}

CUmipmappedArray make_mipmap(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  CUmipmappedArray mipmap = nullptr;
  need("cuMipmappedArrayCreate", &mipmap, &descriptor, 4u);
  return mipmap;
}

CUarray make_planes() {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = describe(64, 32, 0);
  descriptor.Format = CU_AD_FORMAT_NV12;
  descriptor.NumChannels = 3;
  return make_array(descriptor);
}

CUtexObject make_view(CUmipmappedArray mipmap) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmap;
  CUDA_TEXTURE_DESC texture{};
  texture.flags = CU_TRSF_NORMALIZED_COORDINATES;
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  view.width = 64;
  view.height = 16;
  view.firstMipmapLevel = 1;
  view.lastMipmapLevel = 2;
  CUtexObject object = 0;
  need("cuTexObjectCreate", &object, static_cast<const CUDA_RESOURCE_DESC*>(&resource),
       static_cast<const CUDA_TEXTURE_DESC*>(&texture),
       static_cast<const CUDA_RESOURCE_VIEW_DESC*>(&view));
  return object;
}

CUevent make_event(unsigned flags) {
  CUevent event = nullptr;
  need("cuEventCreate", &event, flags);
  return event;
}

CUevent make_green_event(CUgreenCtx green) {
  CUcontext context = nullptr;
  need("cuCtxFromGreenCtx", &context, green);
  need("cuCtxPushCurrent_v2", context);
  const CUevent event = make_event(0);
  need("cuCtxPopCurrent_v2", &context);
  return event;
}

}  // namespace

CUgreenCtx World::green() { MADE(CUgreenCtx, "green", make_green(description())); }
CUmemGenericAllocationHandle World::exportable() {
  MADE(CUmemGenericAllocationHandle, "exportable",
       make_physical(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}
void* World::exported() {
  MADE(void*, "exported", exported_as("cuMemExportToShareableHandle", exportable()));
}
CUmemoryPool World::exportable_pool() {
  MADE(CUmemoryPool, "exportable pool", make_exportable_pool());
}
void* World::exported_pool() {
  MADE(void*, "exported pool", exported_as("cuMemPoolExportToShareableHandle", exportable_pool()));
}
CUmemoryPool World::imported_pool() {
  MADE(CUmemoryPool, "imported pool", import_pool(exported_pool()));
}
CUdeviceptr World::exportable_pool_memory() {
  MADE(CUdeviceptr, "exportable pool memory", allocate_from(exportable_pool()));
}
CUdeviceptr World::managed() { MADE(CUdeviceptr, "managed", make_managed()); }
CUarray World::sparse_array() {
  MADE(CUarray, "sparse array", make_array(describe(1024, 1024, CUDA_ARRAY3D_SPARSE)));
}
CUmipmappedArray World::sparse_mipmap() {
  MADE(CUmipmappedArray, "sparse mipmap", make_mipmap(describe(1024, 1024, CUDA_ARRAY3D_SPARSE)));
}
CUarray World::deferred_array() {
  MADE(CUarray, "deferred array", make_array(describe(64, 16, CUDA_ARRAY3D_DEFERRED_MAPPING)));
}
CUmipmappedArray World::deferred_mipmap() {
  MADE(CUmipmappedArray, "deferred mipmap",
       make_mipmap(describe(64, 16, CUDA_ARRAY3D_DEFERRED_MAPPING)));
}
CUarray World::planes() { MADE(CUarray, "planes", make_planes()); }
CUtexObject World::view() { MADE(CUtexObject, "view", make_view(mipmap())); }
CUevent World::shared_event() {
  MADE(CUevent, "shared event", make_event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
}
CUevent World::green_event() { MADE(CUevent, "green event", make_green_event(green())); }
CUmemGenericAllocationHandle World::tile_pool() {
  MADE(CUmemGenericAllocationHandle, "tile pool",
       make_physical(CU_MEM_HANDLE_TYPE_NONE, CU_MEM_CREATE_USAGE_TILE_POOL));
}
CUlogsCallbackHandle World::log_callback() {
  MADE(CUlogsCallbackHandle, "log callback", make_log_callback());
}
CUasyncCallbackHandle World::notification() {
  MADE(CUasyncCallbackHandle, "notification", make_notification());
}

CUdevResource World::resource() {
  CUdevResource all{};
  if (can()) need("cuDeviceGetDevResource", 0, &all, CU_DEV_RESOURCE_TYPE_SM);
  return all;
}

CUdevResourceDesc World::description() {
  CUdevResourceDesc made = nullptr;
  CUdevResource all = resource();
  if (can()) need("cuDevResourceGenerateDesc", &made, &all, 1u);
  return made;
}

CUgreenCtx World::destroyed(CUgreenCtx) {
  const CUgreenCtx made = make_green(description());
  need("cuGreenCtxDestroy", made);
  return made;
}

CUlogsCallbackHandle World::destroyed(CUlogsCallbackHandle) {
  const CUlogsCallbackHandle made = make_log_callback();
  need("cuLogsUnregisterCallback", made);
  return made;
}

CUasyncCallbackHandle World::destroyed(CUasyncCallbackHandle) {
  const CUasyncCallbackHandle made = make_notification();
  need("cuDeviceUnregisterAsyncNotification", 0, made);
  return made;
}

}  // namespace answers
