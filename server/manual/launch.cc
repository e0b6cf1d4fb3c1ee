// Launches: the packed parameter buffer becomes one pointer per parameter; attributes are checked
// one by one.
#include <cstring>

#include "generated/schema/internal.capnp.h"
#include "generated/server/execution_decode.h"
#include "generated/server/internal_decode.h"
#include "generated/server/occupancy_decode.h"
#include "schema/support/cuda_rules.h"
#include "schema/support/small_buffer.h"
#include "server/image/parameter_layouts.h"
#include "server/manual/manual.h"
#include "server/stream/event_waits.h"

namespace fargpu::server {
namespace {

// The event that the launch records because of the attribute; null: none.
CUevent* event_of(CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return &attribute.value.programmaticEvent.event;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return &attribute.value.launchCompletionEvent.event;
    default:
      return nullptr;
  }
}

// The attributes of a request with one place to spare, for the cooperative one.
class Attributes {
 public:
  Attributes(unsigned count, const void* attributes) : buffer_(count + 1), count_(count) {
    if (count > 0) std::memcpy(buffer_.data(), attributes, count * sizeof(CUlaunchAttribute));
  }
  static bool has_right_size(unsigned count, capnp::Data::Reader data) {
    return count <= schema::kMaxLaunchAttributes &&
           data.size() == count * sizeof(CUlaunchAttribute);
  }
  // Replaces event ids by the driver's events; refuses what could hold a pointer of the client.
  CUresult admit(Worker& worker) {
    for (unsigned i = 0; i < count_; ++i) {
      CUlaunchAttribute& attribute = buffer_.data()[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
        return CUDA_ERROR_NOT_SUPPORTED;
      CUevent* const event = event_of(attribute);
      if (event == nullptr) continue;
      const auto id = reinterpret_cast<uint64_t>(*event);
      const CUresult result = find_handle(worker, rpc::HandleKind::kEvent, id, event);
      if (result != CUDA_SUCCESS) return result;
      records_[record_count_++] = {id, event};
    }
    return CUDA_SUCCESS;
  }
  // Runs `launch`, which records the events.
  template <typename Launch>
  CUresult record(Worker& worker, Launch&& launch, unsigned from = 0) {
    if (from == record_count_) return launch();
    const auto [id, event] = records_[from];
    return worker.parts().event_waits.record(id, *event, [&, event = event](CUevent used) {
      *event = used;
      return record(worker, launch, from + 1);
    });
  }
  void add_cooperative() {
    CUlaunchAttribute& attribute = buffer_.data()[count_++];
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  }
  unsigned count() const { return count_; }
  CUlaunchAttribute* data() { return buffer_.data(); }

 private:
  struct Recorded {
    uint64_t id;
    CUevent* event;
  };
  schema::SmallBuffer<CUlaunchAttribute> buffer_;
  unsigned count_;
  Recorded records_[schema::kMaxLaunchAttributes];
  unsigned record_count_ = 0;
};

template <typename Params>
CUlaunchConfig config_of(const Params& params, CUstream stream, Attributes& attributes) {
  CUlaunchConfig config{};
  config.gridDimX = params.getGridX();
  config.gridDimY = params.getGridY();
  config.gridDimZ = params.getGridZ();
  config.blockDimX = params.getBlockX();
  config.blockDimY = params.getBlockY();
  config.blockDimZ = params.getBlockZ();
  config.sharedMemBytes = params.getSharedBytes();
  config.hStream = stream;
  config.attrs = attributes.count() > 0 ? attributes.data() : nullptr;
  config.numAttrs = attributes.count();
  return config;
}

// What the driver says of a configuration whose attributes may be admitted.
template <typename Results, typename Arguments, typename Ask>
Status clusters(Worker& worker, const Request& request, const Arguments& given, Ask ask,
                void (Results::Builder::*set)(int32_t)) {
  CUlaunchConfig config = *given.config;
  if (config.numAttrs > schema::kMaxLaunchAttributes)
    return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
  Attributes attributes(config.numAttrs, config.attrs);
  FARGPU_ANSWER_UNLESS_SUCCESS(attributes.admit(worker));
  if (config.numAttrs > 0) config.attrs = attributes.data();
  int value = 0;
  FARGPU_ANSWER_UNLESS_SUCCESS(ask(&value, given.func, &config));
  rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
  (frame.init<Results>().*set)(value);
  return frame.send(CUDA_SUCCESS);
}

// A client has one handle for a kernel and its functions. What is launched may be a kernel; what is
// set must be its function in the context.
template <typename Given>
CUresult use_function(const DriverTable& driver, Given& given) {
  if (rpc::handle_kind(given.hfunc_id) != rpc::HandleKind::kKernel) return CUDA_SUCCESS;
  if (driver.cuKernelGetFunction == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return driver.cuKernelGetFunction(&given.hfunc, reinterpret_cast<CUkernel>(given.hfunc));
}

}  // namespace

Status manual_cuFuncSetAttribute(Worker& worker, const Request& request) {
  return decode_cuFuncSetAttribute(worker, request, [&](auto given) -> Status {
    const DriverTable& driver = worker.driver();
    FARGPU_ANSWER_UNLESS_SUCCESS(use_function(driver, given));
    return answer(worker, request,
                  driver.cuFuncSetAttribute(given.hfunc, given.attrib, given.value));
  });
}

Status manual_cuFuncSetCacheConfig(Worker& worker, const Request& request) {
  return decode_cuFuncSetCacheConfig(worker, request, [&](auto given) -> Status {
    const DriverTable& driver = worker.driver();
    FARGPU_ANSWER_UNLESS_SUCCESS(use_function(driver, given));
    return answer(worker, request, driver.cuFuncSetCacheConfig(given.hfunc, given.config));
  });
}

Status manual_cuFuncSetSharedMemConfig(Worker& worker, const Request& request) {
  return decode_cuFuncSetSharedMemConfig(worker, request, [&](auto given) -> Status {
    const DriverTable& driver = worker.driver();
    FARGPU_ANSWER_UNLESS_SUCCESS(use_function(driver, given));
    return answer(worker, request, driver.cuFuncSetSharedMemConfig(given.hfunc, given.config));
  });
}

Status manual_fgLaunch(Worker& worker, const Request& request) {
  return decoded("fgLaunch", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgLaunchParams>();
    const auto parameters = params.getParameters();
    if (!Attributes::has_right_size(params.getAttributeCount(), params.getAttributes()) ||
        parameters.size() != params.getParameterBytes() ||
        parameters.size() > schema::kMaxParameterBytes) {
      return malformed("fgLaunch", "attributes or parameters have the wrong size");
    }
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUfunction function = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kFunction, params.getFunction(), &function));
    const Submission submission(worker, params.getStream());
    FARGPU_ANSWER_UNLESS_SUCCESS(submission.result());
    const CUstream stream = submission.handle();

    const KnownKernel* layout = worker.parts().parameter_layouts.find(params.getFunction());
    if (layout != nullptr)
      FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().memory.use_local(layout->local_bytes));
    schema::SmallBuffer<void*> pointers(layout != nullptr ? layout->offsets.size() : 0);
    if (layout != nullptr && !find_parameters(*layout, as_bytes(parameters), pointers.data()))
      return malformed("fgLaunch", "the kernel has more parameters than came");
    size_t parameter_bytes = parameters.size();
    void* buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<kj::byte*>(parameters.begin()),
                      CU_LAUNCH_PARAM_BUFFER_SIZE, &parameter_bytes, CU_LAUNCH_PARAM_END};
    void** const each = layout != nullptr && parameter_bytes > 0 ? pointers.data() : nullptr;
    void** const packed = layout == nullptr && parameter_bytes > 0 ? buffer : nullptr;
    const DriverTable& driver = worker.driver();
    if (params.getKind() == 0) {
      return answer(
          worker, request,
          driver.cuLaunchKernel(function, params.getGridX(), params.getGridY(), params.getGridZ(),
                                params.getBlockX(), params.getBlockY(), params.getBlockZ(),
                                params.getSharedBytes(), stream, each, packed));
    }
    FARGPU_NEEDS_DRIVER(cuLaunchKernelEx);
    Attributes attributes(params.getAttributeCount(), params.getAttributes().begin());
    FARGPU_ANSWER_UNLESS_SUCCESS(attributes.admit(worker));
    // As an attribute: cuLaunchCooperativeKernel would take no packed buffer.
    if (params.getKind() == 1) attributes.add_cooperative();
    const CUlaunchConfig config = config_of(params, stream, attributes);
    return answer(worker, request, attributes.record(worker, [&] {
      return driver.cuLaunchKernelEx(&config, function, each, packed);
    }));
  });
}

Status manual_fgLaunchMultiDevice(Worker& worker, const Request& request) {
  return decode_fgLaunchMultiDevice(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuLaunchCooperativeKernelMultiDevice);
    std::vector<CUDA_LAUNCH_PARAMS> launches(given.launches.data(),
                                             given.launches.data() + given.count);
    std::vector<std::vector<void*>> pointers(launches.size());
    const std::span<const std::byte> bytes = given.parameters;
    uint64_t begin = 0;
    for (size_t i = 0; i < launches.size(); ++i) {
      CUDA_LAUNCH_PARAMS& launch = launches[i];
      const uint64_t id = handle_id(launch.function);
      const auto size = reinterpret_cast<uint64_t>(launch.kernelParams);
      if (size > schema::kMaxParameterBytes || begin + size > bytes.size())
        return malformed("fgLaunchMultiDevice", "parameters have the wrong size");
      FARGPU_ANSWER_UNLESS_SUCCESS(
          find_handle(worker, rpc::HandleKind::kFunction, id, &launch.function));
      const Submission submission(worker, handle_id(launch.hStream));
      FARGPU_ANSWER_UNLESS_SUCCESS(submission.result());
      launch.hStream = submission.handle();
      launch.kernelParams = nullptr;
      const KnownKernel* const layout = worker.parts().parameter_layouts.find(id);
      if (layout == nullptr && size > 0) return answer(worker, request, CUDA_ERROR_INVALID_IMAGE);
      if (layout != nullptr) {
        FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().memory.use_local(layout->local_bytes));
        pointers[i].resize(layout->offsets.size());
        if (!find_parameters(*layout, bytes.subspan(begin, size), pointers[i].data()))
          return malformed("fgLaunchMultiDevice", "a kernel has more parameters than came");
        launch.kernelParams = pointers[i].data();
      }
      begin += (size + 15) / 16 * 16;
    }
    return answer(worker, request,
                  worker.driver().cuLaunchCooperativeKernelMultiDevice(launches.data(), given.count,
                                                                       given.flags));
  });
}

Status manual_cuOccupancyMaxActiveClusters(Worker& worker, const Request& request) {
  return decode_cuOccupancyMaxActiveClusters(worker, request, [&](const auto& given) {
    using Results = schema::CuOccupancyMaxActiveClustersResults;
    return clusters<Results>(worker, request, given, worker.driver().cuOccupancyMaxActiveClusters,
                             &Results::Builder::setNumClusters);
  });
}

Status manual_cuOccupancyMaxPotentialClusterSize(Worker& worker, const Request& request) {
  return decode_cuOccupancyMaxPotentialClusterSize(worker, request, [&](const auto& given) {
    using Results = schema::CuOccupancyMaxPotentialClusterSizeResults;
    return clusters<Results>(worker, request, given,
                             worker.driver().cuOccupancyMaxPotentialClusterSize,
                             &Results::Builder::setClusterSize);
  });
}

}  // namespace fargpu::server
