// Gates: points at which a stream waits until the executor releases it, without a thread of the
// driver. A gate is a stream's wait for a word in pinned memory that only the executor writes.
//
// A driver runs all host functions on one thread, so a waiting host function (HostGate) delays host
// functions of other streams. A gate does not. The event that opens a gate must not depend on
// another stream. One thread (the executor's). Words belong to a context and end with it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

struct DriverTable;
class StreamHolds;

// The gates of one stream at a time. They open in the order in which they were added. The counts
// continue when the word is given to another stream, so earlier gates stay open.
class GateWord {
 public:
  // `gpu`: the device of the stream that it will hold.
  GateWord(std::atomic<uint32_t>* word, CUdeviceptr device, StreamHolds& holds, CUdevice gpu)
      : word_(word), device_(device), holds_(holds), gpu_(gpu) {}
  // Adds a gate to the stream, whose context is current.
  CUresult add(const DriverTable& driver, CUstream stream);
  // Opens the oldest gate that is shut.
  void open();
  bool all_open() const { return opened_ == added_; }

 private:
  std::atomic<uint32_t>* word_;
  CUdeviceptr device_;
  StreamHolds& holds_;
  const CUdevice gpu_;
  uint32_t added_ = 0, opened_ = 0;
};

class GateWords {
 public:
  // Every gate that is shut is counted in `holds`.
  GateWords(const DriverTable& driver, StreamHolds& holds) : driver_(driver), holds_(holds) {}
  // A word for a stream of the context, which is current. NOT_SUPPORTED: the driver has no waits
  // for values.
  CUresult take(uint16_t context, GateWord** word);
  // All gates of the word are open.
  void give_back(uint16_t context, GateWord* word) { contexts_[context].unused.push_back(word); }
  // The context goes: its pages, for cuMemFreeHost.
  std::vector<void*> take_pages(uint16_t context);

 private:
  struct OfContext {
    std::vector<void*> pages;
    std::vector<std::unique_ptr<GateWord>> words;
    std::vector<GateWord*> unused;
  };
  CUresult add_page(OfContext& context);

  const DriverTable& driver_;
  StreamHolds& holds_;
  std::unordered_map<uint16_t, OfContext> contexts_;
};

}  // namespace fargpu::server
