#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/conformance/answers/answers.h"
#include "tests/conformance/answers/made.h"
#include "tests/conformance/kernels.h"

namespace answers {
namespace {

CUcontext make_context() {
  CUcontext context = nullptr;
  need("cuCtxCreate_v2", &context, 0u, 0);
  return context;
}

CUstream make_stream() {
  CUstream stream = nullptr;
  need("cuStreamCreate", &stream, 0u);
  return stream;
}

CUevent make_event() {
  CUevent event = nullptr;
  if (need("cuEventCreate", &event, 0u)) need("cuEventRecord", event, CUstream{});
  return event;
}

CUmodule make_module() {
  CUmodule module = nullptr;
  need("cuModuleLoadData", &module, static_cast<const void*>(kKernels));
  return module;
}

CUfunction make_function(CUmodule module) {
  CUfunction function = nullptr;
  need("cuModuleGetFunction", &function, module, "fill");
  return function;
}

CUlibrary make_library() {
  CUlibrary library = nullptr;
  need("cuLibraryLoadData", &library, static_cast<const void*>(kKernels),
       static_cast<CUjit_option*>(nullptr), static_cast<void**>(nullptr), 0u,
       static_cast<CUlibraryOption*>(nullptr), static_cast<void**>(nullptr), 0u);
  return library;
}

CUkernel make_kernel(CUlibrary library) {
  CUkernel kernel = nullptr;
  need("cuLibraryGetKernel", &kernel, library, "fill");
  return kernel;
}

CUlinkState make_link() {
  CUlinkState link = nullptr;
  need("cuLinkCreate_v2", 0u, static_cast<CUjit_option*>(nullptr), static_cast<void**>(nullptr),
       &link);
  return link;
}

CUDA_ARRAY3D_DESCRIPTOR describe_array() {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = 64;
  descriptor.Height = 16;
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 1;
  descriptor.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  return descriptor;
}

CUarray make_array() {
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = describe_array();
  CUarray array = nullptr;
  need("cuArray3DCreate_v2", &array, &descriptor);
  return array;
}

CUmipmappedArray make_mipmap() {
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = describe_array();
  CUmipmappedArray mipmap = nullptr;
  need("cuMipmappedArrayCreate", &mipmap, &descriptor, 4u);
  return mipmap;
}

CUDA_RESOURCE_DESC resource_of(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

CUtexObject make_texture(CUarray array) {
  const CUDA_RESOURCE_DESC resource = resource_of(array);
  const CUDA_TEXTURE_DESC texture{};
  CUtexObject object = 0;
  need("cuTexObjectCreate", &object, &resource, &texture,
       static_cast<const CUDA_RESOURCE_VIEW_DESC*>(nullptr));
  return object;
}

CUsurfObject make_surface(CUarray array) {
  const CUDA_RESOURCE_DESC resource = resource_of(array);
  CUsurfObject object = 0;
  need("cuSurfObjectCreate", &object, &resource);
  return object;
}

CUgraph make_graph() {
  CUgraph graph = nullptr;
  need("cuGraphCreate", &graph, 0u);
  return graph;
}

CUgraphNode make_node(CUgraph graph) {
  CUgraphNode node = nullptr;
  need("cuGraphAddEmptyNode", &node, graph, static_cast<const CUgraphNode*>(nullptr), size_t{0});
  return node;
}

CUgraphExec make_exec(CUgraph graph) {
  CUgraphExec exec = nullptr;
  need("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  return exec;
}

CUuserObject make_user_object() {
  CUuserObject object = nullptr;
  need("cuUserObjectCreate", &object, static_cast<void*>(nullptr),
       static_cast<CUhostFn>([](void*) {}), 1u,
       static_cast<unsigned>(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  return object;
}

CUmemoryPool make_pool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  need("cuMemPoolCreate", &pool, static_cast<const CUmemPoolProps*>(&props));
  return pool;
}

}  // namespace

const char* image() { return kKernels; }

bool succeeded(const char* name, CUresult result) {
  if (result != CUDA_SUCCESS) {
    std::fprintf(stderr, "answers: %s: %s\n", name, result_name(result));
  }
  return result == CUDA_SUCCESS;
}

void* symbol(const char* name) {
  static void* const library = [] {
    void* opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "answers: %s\n", dlerror());
      std::_Exit(4);
    }
    return opened;
  }();
  return dlsym(library, name);
}

void World::start(Phase phase) {
  phase_ = phase;
  objects_.clear();
  if (!can()) return;
  need("cuInit", 0u);
  if (context_ == nullptr) context_ = make_context();
}

void World::prepare(bool fresh) {
  if (fresh) objects_.clear();
  if (!can()) return;
  unsigned version = 0;
  // A case may have destroyed the context, or left another one current.
  if (call("cuCtxGetApiVersion", context_, &version) != CUDA_SUCCESS) {
    objects_.clear();
    context_ = make_context();
  }
  call("cuCtxSetCurrent", context_);
}

void World::leave() {
  if (phase_ == Phase::kWithoutContext) call("cuCtxSetCurrent", CUcontext{});
}

CUresult World::synchronise() {
  if (!can()) return CUDA_SUCCESS;
  call("cuCtxSetCurrent", context_);
  release_busy();
  if (const auto capturing = reinterpret_cast<CUstream>(slot("capturing"))) {
    Line unseen;
    answers::end_capture(capturing, unseen);
    slot("capturing") = 0;
  }
  const CUresult result = call("cuCtxSynchronize");
  // A case may have destroyed it.
  return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED
             ? CUDA_SUCCESS
             : result;
}

const Capture kCaptures[8] = {
    {"in a stream captured globally", CU_STREAM_CAPTURE_MODE_GLOBAL, true, true},
    {"in a stream captured by its thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, true},
    {"in a stream captured relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, true, true},
    {"beside a stream captured globally", CU_STREAM_CAPTURE_MODE_GLOBAL, false, true},
    {"beside a stream captured by its thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, true},
    {"beside a stream captured relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, false, true},
    {"beside a stream captured globally, other thread", CU_STREAM_CAPTURE_MODE_GLOBAL, false,
     false},
    {"in a stream captured globally, other thread", CU_STREAM_CAPTURE_MODE_GLOBAL, true, false},
};

void World::begin_capture(const Capture& capture) {
  captured_ = capture.same_stream ? stream() : make_stream();
  // Nothing of what made the arguments may be under way.
  need("cuCtxSynchronize");
  need("cuStreamBeginCapture_v2", captured_, capture.mode);
}

void end_capture(CUstream stream, Line& line) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = call("cuStreamIsCapturing", stream, &status);
  const char* name = status == CU_STREAM_CAPTURE_STATUS_ACTIVE        ? "active"
                     : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated"
                                                                      : "none";
  line.text("capture", asked == CUDA_SUCCESS ? name : result_name(asked));
  CUgraph graph = nullptr;
  const CUresult ended = call("cuStreamEndCapture", stream, &graph);
  if (ended != CUDA_SUCCESS) line.text("end", result_name(ended));
  if (graph == nullptr) return;
  size_t nodes = 0;
  if (call("cuGraphGetNodes", graph, static_cast<CUgraphNode*>(nullptr), &nodes) == CUDA_SUCCESS)
    line.number("nodes", static_cast<long long>(nodes));
  call("cuGraphDestroy", graph);
}

void World::end_capture(Line& line) { answers::end_capture(captured_, line); }

CUresult on_another_thread(const std::function<CUresult()>& call_it) {
  CUcontext context = nullptr;
  call("cuCtxGetCurrent", &context);
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    call("cuCtxSetCurrent", context);
    result = call_it();
  }).join();
  return result;
}

CUcontext World::context() { return can() ? context_ : nullptr; }
CUstream World::stream() { MADE(CUstream, "stream", make_stream()); }
CUevent World::event() { MADE(CUevent, "event", make_event()); }
CUmodule World::module() { MADE(CUmodule, "module", make_module()); }
CUfunction World::function() { MADE(CUfunction, "function", make_function(module())); }
CUlibrary World::library() { MADE(CUlibrary, "library", make_library()); }
CUkernel World::kernel() { MADE(CUkernel, "kernel", make_kernel(library())); }
CUlinkState World::link() { MADE(CUlinkState, "link", make_link()); }
CUarray World::array() { MADE(CUarray, "array", make_array()); }
CUmipmappedArray World::mipmap() { MADE(CUmipmappedArray, "mipmap", make_mipmap()); }
CUtexObject World::texture() { MADE(CUtexObject, "texture", make_texture(array())); }
CUsurfObject World::surface() { MADE(CUsurfObject, "surface", make_surface(array())); }
CUgraph World::graph() { MADE(CUgraph, "graph", make_graph()); }
CUgraph World::other_graph() { MADE(CUgraph, "other graph", make_graph()); }
CUgraphNode World::node() { MADE(CUgraphNode, "node", make_node(graph())); }
CUgraphExec World::exec() { MADE(CUgraphExec, "exec", make_exec(graph())); }
CUuserObject World::user_object() { MADE(CUuserObject, "user object", make_user_object()); }
CUmemoryPool World::pool() { MADE(CUmemoryPool, "pool", make_pool()); }

CUmemoryPool World::default_pool() {
  CUmemoryPool pool = nullptr;
  if (can()) need("cuDeviceGetDefaultMemPool", &pool, 0);
  return pool;
}

const char* World::file() {
  if (file_.empty()) file_ = "/tmp/fargpu-answers-" + std::to_string(getpid()) + ".ptx";
  if (!file_written_) {
    if (FILE* file = std::fopen(file_.c_str(), "w")) {
      std::fputs(kKernels, file);
      std::fclose(file);
    }
    file_written_ = true;
  }
  return file_.c_str();
}

void World::finish() {
  if (!file_.empty()) unlink(file_.c_str());
}

void** World::parameters() {
  static CUdeviceptr place;
  static unsigned value = 1;
  static unsigned count = 4;
  static void* parameters[] = {&place, &value, &count};
  place = memory();
  return parameters;
}

CUcontext World::destroyed(CUcontext) {
  CUcontext made = make_context();
  need("cuCtxDestroy_v2", made);
  call("cuCtxSetCurrent", context_);
  return made;
}

CUstream World::destroyed(CUstream) {
  CUstream made = make_stream();
  need("cuStreamDestroy_v2", made);
  return made;
}

CUevent World::destroyed(CUevent) {
  CUevent made = make_event();
  need("cuEventDestroy_v2", made);
  return made;
}

CUmodule World::destroyed(CUmodule) {
  CUmodule made = make_module();
  need("cuModuleUnload", made);
  return made;
}

CUfunction World::destroyed(CUfunction) {
  CUmodule from = make_module();
  CUfunction made = make_function(from);
  need("cuModuleUnload", from);
  return made;
}

CUlibrary World::destroyed(CUlibrary) {
  CUlibrary made = make_library();
  need("cuLibraryUnload", made);
  return made;
}

CUkernel World::destroyed(CUkernel) {
  CUlibrary from = make_library();
  CUkernel made = make_kernel(from);
  need("cuLibraryUnload", from);
  return made;
}

CUlinkState World::destroyed(CUlinkState) {
  CUlinkState made = make_link();
  need("cuLinkDestroy", made);
  return made;
}

CUarray World::destroyed(CUarray) {
  CUarray made = make_array();
  need("cuArrayDestroy", made);
  return made;
}

CUmipmappedArray World::destroyed(CUmipmappedArray) {
  CUmipmappedArray made = make_mipmap();
  need("cuMipmappedArrayDestroy", made);
  return made;
}

CUgraph World::destroyed(CUgraph) {
  CUgraph made = make_graph();
  need("cuGraphDestroy", made);
  return made;
}

CUgraphNode World::destroyed(CUgraphNode) {
  CUgraphNode made = make_node(graph());
  need("cuGraphDestroyNode", made);
  return made;
}

CUgraphExec World::destroyed(CUgraphExec) {
  CUgraphExec made = make_exec(graph());
  need("cuGraphExecDestroy", made);
  return made;
}

CUuserObject World::destroyed(CUuserObject) {
  CUuserObject made = make_user_object();
  need("cuUserObjectRelease", made, 1u);
  return made;
}

CUmemoryPool World::destroyed(CUmemoryPool) {
  CUmemoryPool made = make_pool();
  need("cuMemPoolDestroy", made);
  return made;
}

void* World::scratch() {
  // In turn, so that several arguments of one call have memory of their own.
  constexpr size_t kBytes = 4096;
  constexpr size_t kPlaces = 32;
  alignas(256) static char places[kPlaces][kBytes];
  static size_t next;
  char* place = places[next++ % kPlaces];
  std::memset(place, 0, kBytes);
  return place;
}

}  // namespace answers
