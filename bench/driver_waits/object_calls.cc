// Calls for code, streams, events, arrays, contexts and idle graphs that name no stream.
#include <initializer_list>

#include "bench/driver_waits/cases.h"
#include "bench/driver_waits/graphs.h"

namespace driver_waits {
namespace {

CUfunction kernel_function(const World& world) {
  return reinterpret_cast<CUfunction>(world.kernel);
}

CUlaunchConfig in_clusters_of_two(CUlaunchAttribute* attribute) {
  attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute->value.clusterDim = {2, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  return config;
}

CUresult cuOccupancyMaxPotentialClusterSize(World& world, CUfunction function) {
  CUlaunchAttribute attribute{};
  CUlaunchConfig config = in_clusters_of_two(&attribute);
  return ::cuOccupancyMaxPotentialClusterSize(&world.number, function, &config);
}

CUresult cuOccupancyMaxActiveClusters(World& world, CUfunction function) {
  CUlaunchAttribute attribute{};
  CUlaunchConfig config = in_clusters_of_two(&attribute);
  return ::cuOccupancyMaxActiveClusters(&world.number, function, &config);
}

Step renamed(Step step, const char* name) {
  step.name = name;
  return step;
}

std::vector<Life> code() {
  const Step load = CALL(cuModuleLoadData, "", &world.module, kPtx);
  const Step get = CALL(cuModuleGetFunction, "", &world.function, world.module, "nothing");
  const Step start = unasked(CALL(launch, "", world.other, world.function));
  const Step unload = CALL(cuModuleUnload, "", world.module);
  const Step load_library =
      CALL(cuLibraryLoadData, "", &world.library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
  const Step get_kernel = CALL(cuLibraryGetKernel, "", &world.kernel, world.library, "nothing");
  const Step unload_library = CALL(cuLibraryUnload, "", world.library);
  const Step start_kernel{"cuLaunchKernel of a library, the first",
                          [](World& world) { return launch(world.other, kernel_function(world)); }};
  std::vector<Life> lives{
      {load, CALL(cuModuleGetGlobal, "", &world.memory, &world.bytes, world.module, "variable"),
       get, start, unload},
      {unasked(load), CALL(cuModuleUnload, "of an unused module", world.module)},
      {load_library, get_kernel, unload_library},
      {unasked(load),
       unasked(CALL(cuModuleGetFunction, "", &world.function, world.module, "many_parameters")),
       CALL(cuFuncGetParamInfo, "", world.function, 0, &world.bytes, &world.more_bytes),
       unasked(unload)},
      {unasked(load_library),
       unasked(CALL(cuLibraryGetKernel, "", &world.kernel, world.library, "many_parameters")),
       CALL(cuKernelGetParamInfo, "", world.kernel, 0, &world.bytes, &world.more_bytes),
       unasked(unload_library)}};
  const Step get_function = CALL(cuKernelGetFunction, "", &world.function, world.kernel);
  const Step get_another = CALL(cuLibraryGetKernel, "", &world.kernel, world.library, "spin");
  lives.push_back(
      {unasked(load_library), unasked(get_kernel), unasked(get_function),
       renamed(get_function, "cuKernelGetFunction again"),
       CALL(cuFuncSetAttribute, "of a kernel's function", world.function,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536),
       unasked(get_another), renamed(get_function, "cuKernelGetFunction of another kernel"),
       CALL(cuLibraryGetGlobal, "behind a kernel's function", &world.memory, &world.bytes,
            world.library, "variable"),
       CALL(cuLibraryGetModule, "behind a kernel's function", &world.module, world.library),
       unasked(unload_library)});
  // Each is the first that uses the function.
  for (const Step& use :
       {CALL(cuFuncLoad, "", world.function),
        CALL(cuFuncGetAttribute, "", &world.number, CU_FUNC_ATTRIBUTE_NUM_REGS, world.function),
        CALL(cuFuncSetAttribute, "", world.function,
             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536),
        CALL(cuFuncSetCacheConfig, "", world.function, CU_FUNC_CACHE_PREFER_L1),
        CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, "", &world.number, world.function, 128,
             0),
        CALL(cuOccupancyAvailableDynamicSMemPerBlock, "", &world.bytes, world.function, 1, 128),
        CALL(cuOccupancyMaxPotentialClusterSize, "", world, world.function),
        CALL(cuOccupancyMaxActiveClusters, "", world, world.function)})
    lives.push_back({unasked(load), unasked(get), use, unasked(unload)});
  for (const Step& use :
       {CALL(cuKernelGetFunction, "", &world.function, world.kernel),
        CALL(cuLibraryGetGlobal, "", &world.memory, &world.bytes, world.library, "variable"),
        CALL(cuLibraryGetModule, "", &world.module, world.library),
        CALL(cuKernelGetAttribute, "", &world.number, CU_FUNC_ATTRIBUTE_NUM_REGS, world.kernel,
             world.device),
        CALL(cuKernelSetAttribute, "", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000,
             world.kernel, world.device),
        CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, "of a library", &world.number,
             kernel_function(world), 128, 0),
        CALL(cuOccupancyAvailableDynamicSMemPerBlock, "of a library", &world.bytes,
             kernel_function(world), 1, 128),
        CALL(cuOccupancyMaxPotentialClusterSize, "of a library", world, kernel_function(world)),
        CALL(cuOccupancyMaxActiveClusters, "of a library", world, kernel_function(world)),
        start_kernel})
    lives.push_back({unasked(load_library), unasked(get_kernel), use, unasked(unload_library)});
  return lives;
}

template <typename Handles, typename Call>
CUresult for_all(Handles& handles, const Call& call) {
  for (auto& handle : handles) {
    const CUresult result = call(handle);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

Life many_streams(const char* name, unsigned flags, int priority) {
  const auto create = [=](CUstream& stream) {
    return cuStreamCreateWithPriority(&stream, flags, priority);
  };
  return {{name, [=](World& world) { return for_all(world.new_streams, create); }},
          unasked(CALL(for_all, "", world.new_streams, cuStreamDestroy))};
}

std::vector<Life> streams_and_events() {
  const Step create = unasked(CALL(cuStreamCreate, "", &world.new_stream, CU_STREAM_NON_BLOCKING));
  const Step start = CALL(launch, "", world.new_stream, world.nothing);
  const Step create_event =
      unasked(CALL(cuEventCreate, "", &world.new_event, CU_EVENT_DISABLE_TIMING));
  const Step record = while_held(CALL(cuEventRecord, "", world.new_event, world.held));
  const Step destroy_event = unasked(CALL(cuEventDestroy, "", world.new_event));
  const auto create_one = [](CUevent& event) { return cuEventCreate(&event, CU_EVENT_DEFAULT); };
  return {
      many_streams("cuStreamCreate, 40 blocking ones", CU_STREAM_DEFAULT, 0),
      many_streams("cuStreamCreate, 40 non-blocking ones", CU_STREAM_NON_BLOCKING, 0),
      many_streams("cuStreamCreateWithPriority, 40", CU_STREAM_NON_BLOCKING, -5),
      {create, unasked(start), CALL(cuStreamDestroy, "of an idle stream", world.new_stream)},
      {create, while_held(CALL(cuEventRecord, "", world.behind, world.held)),
       while_held(CALL(cuStreamWaitEvent, "", world.new_stream, world.behind, 0)),
       while_held(start), CALL(cuStreamDestroy, "of a stream with work", world.new_stream)},
      {CALL(cuStreamQuery, "of the legacy stream", CU_STREAM_LEGACY)},
      {CALL(cuStreamSynchronize, "of an idle stream", world.other)},
      {CALL(cuStreamGetFlags, "", world.held, &world.flags)},
      {{"cuEventCreate, 1000", [=](World& world) { return for_all(world.new_events, create_one); }},
       unasked(CALL(for_all, "", world.new_events, cuEventDestroy))},
      {CALL(cuEventCreate, "interprocess", &world.new_event,
            CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
       destroy_event},
      {create_event, record, CALL(cuEventDestroy, "of a recorded event", world.new_event)},
      {create_event, record,
       while_held(CALL(cuStreamWaitEvent, "", world.follower, world.new_event, 0)),
       CALL(cuEventDestroy, "that a stream waits for", world.new_event)},
      {create_event, record, CALL(cuEventQuery, "of the held stream", world.new_event),
       destroy_event},
      {CALL(cuEventQuery, "of an idle stream", world.idle)},
      {while_held(CALL(cuEventRecord, "", world.timed_again, world.held)),
       CALL(cuEventElapsedTime, "of the held stream", &world.milliseconds, world.timed,
            world.timed_again)}};
}

CUresult create_texture(World& world) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = world.new_array;
  const CUDA_TEXTURE_DESC texture{};
  return cuTexObjectCreate(&world.texture, &resource, &texture, nullptr);
}

// cuCtxCreate changes the context of its thread.
CUresult create_context(World& world) {
  const CUresult result = cuCtxCreate(&world.new_context, nullptr, 0, world.device);
  cuCtxSetCurrent(world.context);
  return result;
}

std::vector<Life> arrays_and_contexts() {
  return {{CALL(cuArrayCreate, "", &world.new_array, &world.array_shape),
           {"cuTexObjectCreate", create_texture},
           CALL(cuTexObjectDestroy, "", world.texture),
           CALL(cuArrayDestroy, "", world.new_array)},
          {CALL(cuMipmappedArrayCreate, "", &world.mipmapped_array, &world.mipmapped_shape, 3),
           CALL(cuMipmappedArrayDestroy, "", world.mipmapped_array)},
          {{"cuCtxCreate", create_context}, CALL(cuCtxDestroy, "", world.new_context)},
          {CALL(cuCtxSetLimit, "of the stack", CU_LIMIT_STACK_SIZE, 2048),
           unasked(CALL(cuCtxSetLimit, "", CU_LIMIT_STACK_SIZE, 1024))},
          {CALL(cuCtxSetLimit, "of printf", CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20),
           unasked(CALL(cuCtxSetLimit, "", CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20))},
          {CALL(cuCtxGetLimit, "", &world.bytes, CU_LIMIT_STACK_SIZE)},
          {CALL(cuCtxSetCurrent, "", world.context)},
          {CALL(cuCtxSetCacheConfig, "", CU_FUNC_CACHE_PREFER_NONE)},
          {CALL(cuCtxResetPersistingL2Cache, "")},
          {unasked(CALL(cuDeviceGetDevResource, "", world.device, &world.resource,
                        CU_DEV_RESOURCE_TYPE_SM)),
           unasked(CALL(cuDevResourceGenerateDesc, "", &world.resource_description, &world.resource,
                        1)),
           CALL(cuGreenCtxCreate, "", &world.green_context, world.resource_description,
                world.device, CU_GREEN_CTX_DEFAULT_STREAM),
           CALL(cuGreenCtxStreamCreate, "", &world.new_stream, world.green_context,
                CU_STREAM_NON_BLOCKING, 0),
           unasked(CALL(cuStreamDestroy, "", world.new_stream)),
           CALL(cuGreenCtxDestroy, "", world.green_context)}};
}

CUresult instantiate_and_upload(World& world) {
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  parameters.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  parameters.hUploadStream = world.other;
  return cuGraphInstantiateWithParams(&world.exec, world.graph, &parameters);
}

std::vector<Life> graphs() {
  std::vector<Life> lives;
  for (const std::string chain : {"kernel", "host", "allocation, free"}) {
    const std::string name = "of (" + chain + ")";
    const Step create = unasked(graph_step(chain));
    const Step destroy_exec = CALL(cuGraphExecDestroy, name, std::exchange(world.exec, nullptr));
    const Step destroy = unasked(CALL(cuGraphDestroy, "", world.graph));
    lives.push_back({create, CALL(cuGraphInstantiate, name, &world.exec, world.graph, 0),
                     CALL(cuGraphLaunch, name + ", the first", world.exec, world.other),
                     CALL(cuGraphExecUpdate, name, world.exec, world.graph, &world.update),
                     destroy_exec, destroy});
    lives.push_back({create,
                     {"cuGraphInstantiateWithParams " + name, instantiate_and_upload},
                     unasked(destroy_exec),
                     destroy});
  }
  return lives;
}

}  // namespace

std::vector<Life> object_lives() {
  return joined({code(), streams_and_events(), arrays_and_contexts(), graphs()});
}

}  // namespace driver_waits
