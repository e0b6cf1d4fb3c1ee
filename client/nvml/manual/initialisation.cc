#include <array>
#include <cstdint>
#include <cstring>

#include "client/nvml/manual/common.h"
#include "common/base/log.h"
#include "schema/nvml/error_text.h"

namespace fargpu::nvml {
namespace {

// What nvidia-smi asks for before anything else. It goes on when functions of the table are
// refused, but not without the table. What the others do is known of R535, R550 and R580.
constexpr unsigned char kNvidiaSmiTable[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                               0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
constexpr size_t kTableWords = 512;  // more than any release is known to have

nvmlReturn_t not_published() { return NVML_ERROR_NOT_SUPPORTED; }

// Whether dmon and pmon can watch the device. The rest of dmon uses published functions.
nvmlReturn_t can_be_watched(nvmlDevice_t, int* answer) {
  if (answer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *answer = 1;
  return NVML_SUCCESS;
}

// Processes on the device, by their kind: pmon waits for an answer.
nvmlReturn_t no_processes(nvmlDevice_t, unsigned* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

// Its size in bytes, then functions.
const void* nvidia_smi_table() {
  static const auto table = [] {
    std::array<uintptr_t, kTableWords> words;
    words.fill(reinterpret_cast<uintptr_t>(&not_published));
    words[0] = sizeof(words);
    words[72] = reinterpret_cast<uintptr_t>(&can_be_watched);
    for (const size_t kind : {213, 214, 215})
      words[kind] = reinterpret_cast<uintptr_t>(&no_processes);
    return words;
  }();
  return table.data();
}

}  // namespace

nvmlReturn_t manual_nvmlInit() { return initialise(); }

nvmlReturn_t manual_nvmlInit_v2() { return initialise(); }

nvmlReturn_t manual_nvmlInitWithFlags(unsigned int flags) {
  // A job always has a GPU, and attaches none.
  if ((flags & ~(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)) != 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  return initialise();
}

nvmlReturn_t manual_nvmlShutdown() { return shut_down(); }

const char* manual_nvmlErrorString(nvmlReturn_t result) { return nvml_error_text(result); }

nvmlReturn_t manual_nvmlInternalGetExportTable(const void** table, const void* id) {
  if (table == nullptr || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (std::memcmp(id, kNvidiaSmiTable, sizeof(kNvidiaSmiTable)) == 0) {
    *table = nvidia_smi_table();
    return NVML_SUCCESS;
  }
  *table = nullptr;
  static Refused refused{"nvmlInternalGetExportTable"};
  if (!refused.told.exchange(true))
    log::info("{}: a table that is not published was asked for; there is none", refused.name);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t manual_nvmlUnitGetCount(unsigned int* unitCount) {
  return with_library([&](Library&) { return give(unitCount, 0U); });
}

}  // namespace fargpu::nvml
