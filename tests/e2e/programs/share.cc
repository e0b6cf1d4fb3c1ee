// One process of several that share GPU memory, at the command of a test: its stdin is a unix
// socket (SOCK_SEQPACKET). A message is a command, perhaps with a descriptor, and is answered by a
// result's name, perhaps with a value and a descriptor.
#include <cuda.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "tests/e2e/programs/driver_check.h"

namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

struct Message {
  std::string text;
  int descriptor = -1;
};

union Room {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool receive(Message* message) {
  char text[1024];
  iovec piece{text, sizeof text};
  Room room;
  msghdr whole{};
  whole.msg_iov = &piece;
  whole.msg_iovlen = 1;
  whole.msg_control = room.bytes;
  whole.msg_controllen = sizeof room.bytes;
  const ssize_t bytes = ::recvmsg(STDIN_FILENO, &whole, 0);
  if (bytes <= 0) return false;
  message->text.assign(text, static_cast<size_t>(bytes));
  if (const cmsghdr* attached = CMSG_FIRSTHDR(&whole))
    std::memcpy(&message->descriptor, CMSG_DATA(attached), sizeof(int));
  return true;
}

bool send(const Message& message) {
  iovec piece{const_cast<char*>(message.text.data()), message.text.size()};
  Room room{};
  msghdr whole{};
  whole.msg_iov = &piece;
  whole.msg_iovlen = 1;
  if (message.descriptor >= 0) {
    whole.msg_control = room.bytes;
    whole.msg_controllen = sizeof room.bytes;
    cmsghdr* attached = CMSG_FIRSTHDR(&whole);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(attached), &message.descriptor, sizeof(int));
  }
  return ::sendmsg(STDIN_FILENO, &whole, 0) >= 0;
}

const char* name_of(CUresult result) {
  const char* name = "?";
  cuGetErrorName(result, &name);
  return name;
}

// Physical memory, mapped.
CUmemGenericAllocationHandle handle = 0;
CUdeviceptr address = 0;
size_t mapped = 0;

CUresult map() {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = cuMemAddressReserve(&address, mapped, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = cuMemMap(address, mapped, 0, handle, 0);
  return result == CUDA_SUCCESS ? cuMemSetAccess(address, mapped, &access, 1) : result;
}

// Handles of IPC as text.
template <typename Handle>
std::string text_of(const Handle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

template <typename Handle>
Handle handle_of(const std::string& text) {
  Handle handle{};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return handle;
}

// "alloc MIB", "handle", "open HANDLE", "close", and the same of an event.
CUresult obey_ipc(const std::string& what, const std::string& argument, Message* answer) {
  static CUevent event = nullptr;
  if (what == "alloc") {
    mapped = std::stoul(argument) * kMebibyte;
    return cuMemAlloc(&address, mapped);
  }
  if (what == "handle") {
    CUipcMemHandle own{};
    const CUresult result = cuIpcGetMemHandle(&own, address);
    answer->text = text_of(own);
    return result;
  }
  if (what == "open") {
    const CUresult result = cuIpcOpenMemHandle(&address, handle_of<CUipcMemHandle>(argument),
                                               CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return result == CUDA_SUCCESS ? cuMemGetAddressRange(nullptr, &mapped, address) : result;
  }
  if (what == "close") return cuIpcCloseMemHandle(address);
  if (what == "event") {
    CUipcEventHandle own{};
    CUresult result = cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) result = cuIpcGetEventHandle(&own, event);
    answer->text = text_of(own);
    return result;
  }
  if (what == "open_event")
    return cuIpcOpenEventHandle(&event, handle_of<CUipcEventHandle>(argument));
  if (what == "record") return cuEventRecord(event, nullptr);
  if (what == "synchronize") return cuEventSynchronize(event);
  return CUDA_ERROR_UNKNOWN;
}

// "pool MIB" gives a descriptor and data, "import_pool DATA" with the descriptor, "free".
CUresult obey_pool(const std::string& what, const std::string& argument, int descriptor,
                   Message* answer) {
  CUmemoryPool pool = nullptr;
  CUmemPoolPtrExportData data{};
  if (what == "pool") {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.handleTypes = kDescriptor;
    mapped = std::stoul(argument) * kMebibyte;
    CUresult result = cuMemPoolCreate(&pool, &properties);
    if (result == CUDA_SUCCESS) result = cuMemAllocFromPoolAsync(&address, mapped, pool, nullptr);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
    if (result == CUDA_SUCCESS)
      result = cuMemPoolExportToShareableHandle(&answer->descriptor, pool, kDescriptor, 0);
    if (result == CUDA_SUCCESS) result = cuMemPoolExportPointer(&data, address);
    answer->text = text_of(data);
    return result;
  }
  if (what == "import_pool") {
    CUresult result = cuMemPoolImportFromShareableHandle(
        &pool, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), kDescriptor, 0);
    if (result != CUDA_SUCCESS) return result;
    data = handle_of<CUmemPoolPtrExportData>(argument);
    result = cuMemPoolImportPointer(&address, pool, &data);
    return result == CUDA_SUCCESS ? cuMemGetAddressRange(nullptr, &mapped, address) : result;
  }
  if (what == "free") {
    const CUresult result = cuMemFreeAsync(address, nullptr);
    return result == CUDA_SUCCESS ? cuStreamSynchronize(nullptr) : result;
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult obey(const Message& command, Message* answer) {
  std::istringstream words(command.text);
  std::string what, argument;
  words >> what >> argument;
  const bool is_number = !argument.empty() && argument.size() < 6;
  const size_t number = is_number ? std::stoul(argument) : 0;
  if (what == "create" || what == "import") {
    mapped = number * kMebibyte;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = kDescriptor;
    const CUresult result =
        what == "create"
            ? cuMemCreate(&handle, mapped, &properties, 0)
            : cuMemImportFromShareableHandle(
                  &handle, reinterpret_cast<void*>(static_cast<intptr_t>(command.descriptor)),
                  kDescriptor);
    return result == CUDA_SUCCESS ? map() : result;
  }
  if (what == "export")
    return cuMemExportToShareableHandle(&answer->descriptor, handle, kDescriptor, 0);
  if (what == "release") {
    const CUresult result = cuMemUnmap(address, mapped);
    return result == CUDA_SUCCESS ? cuMemRelease(handle) : result;
  }
  if (what == "write") {
    const CUresult result = cuMemsetD8(address, static_cast<unsigned char>(number), mapped);
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
  }
  if (what == "read") {
    unsigned char byte = 0;
    const CUresult result = cuMemcpyDtoH(&byte, address + mapped - 1, 1);
    answer->text = std::to_string(byte);
    return result;
  }
  if (what == "take") {
    CUdeviceptr memory = 0;
    return cuMemAlloc(&memory, number * kMebibyte);
  }
  if (what == "used") {  // MiB, of the job
    size_t free = 0, total = 0;
    const CUresult result = cuMemGetInfo(&free, &total);
    answer->text = std::to_string((total - free) / kMebibyte);
    return result;
  }
  if (what == "pool" || what == "import_pool" || what == "free")
    return obey_pool(what, argument, command.descriptor, answer);
  return obey_ipc(what, argument, answer);
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  Message command;
  if (!send({"ready", -1})) return 1;
  while (receive(&command)) {
    Message answer;
    const CUresult result = obey(command, &answer);
    answer.text = name_of(result) + (answer.text.empty() ? "" : " " + answer.text);
    if (!send(answer)) return 1;
    if (command.descriptor >= 0) ::close(std::exchange(command.descriptor, -1));
  }
  return 0;
}
