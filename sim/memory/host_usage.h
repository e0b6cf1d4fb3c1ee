// HostUsage: the memory that all processes of a host use on their shared simulated GPUs, in one
// file that each process maps.
//
// A process owns a slot of the file, which holds its bytes, GPU by GPU. It owns the slot by a lock
// of the file that the system takes away with the process: so the memory of a killed process is
// free when the process has ended. A slot whose owner has gone counts nothing. Thread safe.
//
// While a process is in cuInit, the memory of processes that end meanwhile counts as taken: on an
// H200 (driver 580) it was back when a third process had left cuInit.
//
// Memory that another process has opened (IPC) stays taken until that one has closed it, also when
// its exporter has freed it, or has ended: the real driver (580) does so.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::sim {

class HostUsage {
 public:
  static constexpr int kUnits = 128;
  // kSystem: the file cannot be opened, or has no free slot.
  static Result<std::shared_ptr<HostUsage>> open(const std::string& path);
  // To read it alone: without a slot.
  static Result<std::shared_ptr<HostUsage>> look(const std::string& path);
  ~HostUsage();
  HostUsage(const HostUsage&) = delete;
  HostUsage& operator=(const HostUsage&) = delete;

  // Takes `bytes` of `total` if the processes of the host leave so many; false: they do not.
  bool take(int unit, uint64_t bytes, uint64_t total);
  void give_back(int unit, uint64_t bytes);
  uint64_t used(int unit) const;

  // This process is in cuInit.
  void begin_initialization();
  void end_initialization();

  // This process exports memory; importers know it by `exporter` (not 0).
  void export_as(uint64_t exporter);
  // It has freed the allocation `id` of its own.
  void freed(uint64_t id);
  // It has opened, and closed, an allocation of another process. More than kOpened do not count.
  void opened(uint64_t exporter, uint64_t id, int unit, uint64_t bytes);
  void closed(uint64_t exporter, uint64_t id);

 private:
  static constexpr int kSlots = 256, kOpened = 64;
  struct Opened;
  struct Slot;
  struct Page;
  HostUsage(Fd file, Page* page) : file_(std::move(file)), page_(page) {}
  static Result<std::shared_ptr<HostUsage>> map(const std::string& path);
  bool lock(int at, bool wait) const;
  void unlock(int at) const;
  bool has_owner(int slot) const;
  bool any_initializes() const;
  bool lives(uint64_t exporter) const;
  // Of memory that is opened and whose exporter has it no more; all slots up to the last in use.
  uint64_t left_open(int unit) const;

  const Fd file_;
  Page* const page_;
  int slot_ = -1;
};

}  // namespace fargpu::sim
