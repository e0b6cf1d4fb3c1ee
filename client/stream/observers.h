// Observers: what may notice that the effect of a call is not there yet although the call has
// returned, or may change host memory that a copy still reads. One set per session. Calls ask it
// before they decide how a copy travels and when its call returns (client/copy/copy_plan.h).
//
// A question is one load. Each observer is written by its owner alone, under the owner's lock. Any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace fargpu::client {

class Observers {
 public:
  using Set = uint64_t;
  enum Observer : Set {
    // Functions of the application are in streams, run, or have not been reported as returned. Of
    // a copy: those that its stream may come behind (client/entry/function_order.h).
    // Owner: HostCalls, as of the next one.
    kHostFunctions = 1 << 0,
    // The same, or something else of this process holds, or may hold, a stream.
    kHeldStreams = 1 << 1,
    // Copies that follow their stream are under way. Owner: OrderedCopies, as of the next one.
    kCopies = 1 << 2,
    // Among them are deliveries to memory that device code can reach since the call.
    kUnseenDeliveries = 1 << 3,
    // Pinned memory that the worker has at the same addresses, ever. Owner: SharedHost.
    kSharedMemory = 1 << 4,
    // Host memory with a mirror in the worker. Owner: Pages.
    kMirrors = 1 << 5,
    // Pinned and registered memory that may be fetched on access. Owner: GatedHost.
    kGateableMemory = 1 << 6,
    // Such memory that is fetched on access. Owner: GatedHost.
    kGatedMemory = 1 << 10,
    // Owner: ManagedMemory.
    kManagedMemory = 1 << 7,
    // A function of the application was put into a stream, ever.
    kFunctionsEver = 1 << 12,
    // A wait for a value in memory was put into a stream, ever, or is being put there.
    kValueWaits = 1 << 8 | Set{0xffff} << 16,
    // Memory or an event was given to other processes or is theirs, ever, or is being given.
    kOtherProcesses = 1 << 9 | Set{0xffff} << 32,
  };

  bool any(Set of) const { return (all() & of) != 0; }
  Set all() const { return all_.load(std::memory_order_acquire); }
  // For an owner, under its lock; and for what stays for good.
  void add(Observer one) { all_.fetch_or(flag(one), std::memory_order_acq_rel); }
  void remove(Observer one) { all_.fetch_and(~flag(one), std::memory_order_acq_rel); }
  void set(Observer one, bool is_there) { is_there ? add(one) : remove(one); }

  // kValueWaits or kOtherProcesses, around the call that brings it: there from the constructor on,
  // and for good if the call succeeds.
  class Coming {
   public:
    Coming(Observers& observers, Observer one) : observers_(observers), one_(one) {
      observers_.all_.fetch_add(count(one_), std::memory_order_acq_rel);
    }
    ~Coming() { observers_.all_.fetch_sub(count(one_), std::memory_order_acq_rel); }
    Coming(const Coming&) = delete;
    Coming& operator=(const Coming&) = delete;
    void stays() { observers_.add(one_); }

   private:
    // One more in the field of those that are coming.
    static constexpr Set count(Observer one) {
      return one == kValueWaits ? Set{1} << 16 : Set{1} << 32;
    }
    Observers& observers_;
    const Observer one_;
  };

 private:
  static constexpr Set flag(Observer one) { return one & 0xffff; }

  alignas(64) std::atomic<Set> all_{0};
};

}  // namespace fargpu::client
