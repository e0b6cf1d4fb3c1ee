#include "client/servers/cross_server_work.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/process/process.h"
#include "client/process/session.h"

namespace fargpu::client {

// Never destroyed: threads use it until the process ends.
struct CrossServerWork::Table {
  std::mutex mutex;
  std::condition_variable fewer;
  std::vector<const CrossServerWork*> works;
  uint64_t begun = 0;
};

CrossServerWork::Table& CrossServerWork::table() {
  static auto& made = *new Table;
  return made;
}

CrossServerWork::CrossServerWork(std::vector<const Context*> contexts, std::vector<Range> memory)
    : contexts_(std::move(contexts)), memory_(std::move(memory)) {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  all.works.push_back(this);
  number_ = ++all.begun;
  count_.store(all.works.size(), std::memory_order_release);
}

CrossServerWork::~CrossServerWork() {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  std::erase(all.works, this);
  count_.store(all.works.size(), std::memory_order_release);
  all.fewer.notify_all();
}

bool CrossServerWork::touches(const Context* context, const Range& memory) const {
  if (context != nullptr)
    return std::find(contexts_.begin(), contexts_.end(), context) != contexts_.end();
  return std::any_of(memory_.begin(), memory_.end(), [&](const Range& own) {
    return own.begin < memory.begin + memory.bytes && memory.begin < own.begin + own.bytes;
  });
}

void CrossServerWork::finish(const Context* context, const Range& memory) {
  // The work may wait for what this thread has put into streams.
  Process::get().for_each_session([](Session& session) { (void)session.channel().flush(); });
  Table& all = table();
  std::unique_lock lock(all.mutex);
  const uint64_t last = all.begun;
  all.fewer.wait(lock, [&] {
    return std::none_of(all.works.begin(), all.works.end(), [&](const CrossServerWork* each) {
      return each->number_ <= last && each->touches(context, memory);
    });
  });
}

void CrossServerWork::finish_with_all_of(uint64_t image) {
  Tables& tables = *Process::get().tables();
  std::vector<Region> variables;
  tables.device_memory.for_each([&](const Region& region) {
    if (region.kind == MemoryKind::kGlobal) variables.push_back(region);
  });
  for (const Region& variable : variables) {
    const Object* const owner =
        tables.handles.find(rpc::handle_kind(variable.owner), variable.owner);
    // A library's module may have been asked for the variable.
    if (variable.owner == image || (owner != nullptr && owner->parent == image))
      finish(nullptr, {variable.base, variable.bytes});
  }
}

}  // namespace fargpu::client
