// KeptObjects: data with the lifetime of an object of the application: memory that a driver's
// object reads or writes at any time, data that a graph uses at each launch.
//
// Code that makes such data hands it over here with its object, and need not find it at the end. It
// goes when the object has ended and all parts have been told, on the executor's thread, the last
// one first. Data that may outlive its object for a while (a call under way on a helper thread) is
// shared. Data that lives until work is done: server/stream/lifetime.h. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/rpc/handle_kind.h"
#include "server/object/handle_table.h"

namespace fargpu::server {

struct UntilEnded {
  uint64_t id;  // of the object
};

class KeptObjects {
 public:
  // `handles` outlives this. The owner is notified of the ends of its objects and passes them on by
  // ended().
  explicit KeptObjects(const HandleTable& handles) : handles_(handles) {}
  KeptObjects(const KeptObjects&) = delete;
  KeptObjects& operator=(const KeptObjects&) = delete;
  ~KeptObjects() {
    while (!kept_.empty()) ended(kept_.begin()->first);
  }

  // `kept`, which can be moved, lives until then; that is now when there is no such object. A
  // std::shared_ptr is kept as it is.
  template <typename Kept>
  void keep(const UntilEnded& lifetime, Kept kept) {
    add(lifetime.id, std::make_shared<Kept>(std::move(kept)));
  }
  template <typename Shared>
  void keep(const UntilEnded& lifetime, std::shared_ptr<Shared> kept) {
    add(lifetime.id, std::move(kept));
  }
  // How many things are kept with objects of this kind.
  size_t count(rpc::HandleKind kind) const { return counts_[static_cast<size_t>(kind)]; }

  // The table does not know the object any more.
  void ended(uint64_t id) {
    if (kept_.empty()) return;
    const auto found = kept_.find(id);
    if (found == kept_.end()) return;
    // Out of the table first: the end of one thing may be that of another object.
    auto things = std::move(found->second);
    kept_.erase(found);
    counts_[static_cast<size_t>(rpc::handle_kind(id))] -= things.size();
    while (!things.empty()) things.pop_back();
  }

 private:
  void add(uint64_t id, std::shared_ptr<void> kept) {
    if (handles_.find(id) == nullptr) return;
    kept_[id].push_back(std::move(kept));
    ++counts_[static_cast<size_t>(rpc::handle_kind(id))];
  }

  const HandleTable& handles_;
  std::unordered_map<uint64_t, std::vector<std::shared_ptr<void>>> kept_;  // by id
  std::array<size_t, 32> counts_{};                                        // by kind
};

}  // namespace fargpu::server
