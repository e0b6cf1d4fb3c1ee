// Functions of the device runtime that programs call and the engine provides: vprintf,
// __assertfail, malloc, free, and functions for device graph launch and device-updatable nodes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "sim/exec/program_code.h"

namespace fargpu::sim {

// kNone when the engine has no function of this name.
Builtin builtin_from_name(std::string_view name);

// Runs the function for lanes `mask` of the running path: arguments from and results to the
// caller's local frame.
void call_builtin(Exec& x, const Instr& in, const FunctionCode& function, const CallSite& site,
                  uint32_t mask);

// The heap of device-side malloc: one region, made at the first use. Thread safe; lives as long as
// its program.
class DeviceHeap {
 public:
  DeviceHeap(MemoryMap& memory, size_t bytes) : memory_(memory), bytes_(bytes) {}
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;
  uint64_t allocate(uint64_t bytes);  // 16-byte aligned; 0: no memory left
  bool release(uint64_t address);     // false: not an address of this heap; 0 is fine

 private:
  MemoryMap& memory_;
  const size_t bytes_;
  std::mutex mutex_;
  uint64_t base_ = 0;
  bool failed_ = false;
  std::map<uint64_t, uint64_t> free_, used_;  // address to bytes
};

// The text of one device printf. `read` fetches argument bytes, `text` strings by address; either
// may fail.
class PrintSource {
 public:
  virtual ~PrintSource() = default;
  virtual bool argument(unsigned bytes, uint64_t& value) = 0;
  virtual bool text(uint64_t address, std::string& value) = 0;
};
// Appends to `out`; the number of arguments used, or -1 when the source failed.
int format_print(std::string_view format, PrintSource& source, std::string& out);

}  // namespace fargpu::sim
