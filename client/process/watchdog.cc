#include "client/process/watchdog.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <thread>

#include "client/process/process.h"
#include "client/process/session.h"
#include "common/host/thread.h"
#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client::watchdog {

// Written by the calling thread, read by the watchdog's.
struct Slot {
  std::atomic<const char*> name{nullptr};  // nullptr: free; released after all else
  std::atomic<int64_t> began_ns{0};
  std::atomic<CUstream> stream{nullptr};
  std::atomic<bool> has_stream{false};
  std::atomic<pid_t> thread{0};
  std::atomic<bool> taken{false};
};

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kSlots = 512;
constexpr auto kAnswerWithin = std::chrono::seconds(2);

constinit std::array<Slot, kSlots> slots{};
thread_local Slot* current = nullptr;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

std::string name_of(uint32_t opcode) {
  if (opcode == 0) return "nothing in particular";
  return opcode < wire::kFirstApiOpcode || opcode > UINT16_MAX
             ? fmt::format("control opcode {}", opcode)
             : std::string(schema::opcode_name(static_cast<uint16_t>(opcode)));
}

// The unfinished work that the worker reports, oldest first.
std::string worker_state(Session& session) {
  rpc::Reply reply;
  const Status status =
      session.channel().ask(wire::kInspect, reply, transport::Clock::now() + kAnswerWithin);
  if (!status.ok()) {
    const uint32_t opcode = session.worker_in.load(std::memory_order_relaxed);
    return fmt::format("the worker has not answered for {} s ({}); when it last said, it was in {}",
                       kAnswerWithin.count(), status.message(), name_of(opcode));
  }
  try {
    const auto inspection = reply.root<schema::Inspection>();
    std::string text = "the worker waits for";
    if (inspection.getWaits().size() == 0) text += " nothing";
    for (const auto wait : inspection.getWaits())
      text += fmt::format(" {} ({:.1f} s)", name_of(wait.getOpcode()), wait.getSeconds());
    return text + fmt::format("; {} host functions in streams, {} driver calls on helper threads",
                              inspection.getHostFunctions(), inspection.getHelperCalls());
  } catch (const kj::Exception&) {
    return "the worker's answer is malformed";
  }
}

// The state of one session, as text.
std::string session_state(Session& session, bool by_name) {
  return fmt::format(
      "; {}{}{}{}", by_name ? session.settings.server + ": " : "", worker_state(session),
      session.observers.any(Observers::kHostFunctions)
          ? "; functions of the program are in streams or running"
          : "",
      session.observers.any(Observers::kCopies) ? "; copies of pinned memory are under way" : "");
}

void tell(const Slot& slot, const char* name, double seconds) {
  const std::string stream =
      slot.has_stream.load(std::memory_order_relaxed)
          ? fmt::format(", stream {}",
                        static_cast<const void*>(slot.stream.load(std::memory_order_relaxed)))
          : "";
  std::string line =
      fmt::format("fargpu: watchdog: thread {} has been in {} for {:.1f} s{}",
                  slot.thread.load(std::memory_order_relaxed), name, seconds, stream);
  const bool several = Process::get().session(1) != nullptr;
  Process::get().for_each_session([&](Session& each) { line += session_state(each, several); });
  line += '\n';
  std::fputs(line.c_str(), stderr);
}

void watch(std::chrono::microseconds limit) {
  const int64_t limit_ns = std::chrono::nanoseconds(limit).count();
  const auto nap = std::clamp<std::chrono::microseconds>(limit / 4, std::chrono::milliseconds(10),
                                                         std::chrono::seconds(1));
  std::array<int64_t, kSlots> told{};  // begin of the call that was reported last
  while (Process::get().state() != ProcessState::kExiting) {
    std::this_thread::sleep_for(nap);
    for (size_t i = 0; i < kSlots; ++i) {
      const char* name = slots[i].name.load(std::memory_order_acquire);
      const int64_t began = slots[i].began_ns.load(std::memory_order_relaxed);
      const int64_t age = now_ns() - began;
      if (name == nullptr || age < limit_ns || told[i] == began) continue;
      told[i] = began;
      tell(slots[i], name, static_cast<double>(age) / 1e9);
    }
  }
}

}  // namespace

void start(std::chrono::microseconds limit) {
  Thread([limit] { watch(limit); }).detach();
  is_on.store(true, std::memory_order_relaxed);
}

void abandon_after_fork() { is_on.store(false, std::memory_order_relaxed); }

Slot* enter(const char* name) {
  static std::atomic<unsigned> next{0};
  const unsigned first = next.fetch_add(1, std::memory_order_relaxed);
  for (unsigned i = 0; i < kSlots; ++i) {
    Slot& slot = slots[(first + i) % kSlots];
    if (slot.taken.load(std::memory_order_relaxed) ||
        slot.taken.exchange(true, std::memory_order_acquire))
      continue;
    slot.began_ns.store(now_ns(), std::memory_order_relaxed);
    slot.has_stream.store(false, std::memory_order_relaxed);
    slot.thread.store(static_cast<pid_t>(::syscall(SYS_gettid)), std::memory_order_relaxed);
    slot.name.store(name, std::memory_order_release);
    return current = &slot;
  }
  return nullptr;
}

void leave(Slot* slot) {
  current = nullptr;
  slot->name.store(nullptr, std::memory_order_relaxed);
  slot->taken.store(false, std::memory_order_release);
}

void note_stream(CUstream stream) {
  if (current == nullptr) return;
  current->stream.store(stream, std::memory_order_relaxed);
  current->has_stream.store(true, std::memory_order_relaxed);
}

}  // namespace fargpu::client::watchdog
