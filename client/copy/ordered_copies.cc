#include "client/copy/ordered_copies.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/base/log.h"
#include "common/host/foreign_memory.h"
#include "common/host/mapped_memory.h"

namespace fargpu::client {
namespace {

constexpr size_t kUnusedNodes = 64;

Status broken(const char* notice, uint64_t id, const char* why) {
  return {StatusCode::kProtocol, fmt::format("{}: copy {}: {}", notice, id, why)};
}

const std::byte* pointer(uint64_t address) { return reinterpret_cast<const std::byte*>(address); }

}  // namespace

// Of memory that has gone nobody sees the bytes any more.
void OrderedCopies::unpack_into(const Copy& copy, uint64_t offset,
                                std::span<const std::byte> bytes) {
  if (copy.memory == Memory::kOurs) return unpack(copy.shape, copy.host, offset, bytes);
  const std::byte* from = bytes.data();
  std::array<ForeignPiece, 256> rows;
  size_t count = 0;
  for_each_row(copy.shape, copy.host, offset, bytes.size(), [&](uint64_t address, uint64_t length) {
    rows[count++] = {address, {from, length}};
    if (count == rows.size()) write_foreign_pieces(std::span(rows).first(std::exchange(count, 0)));
    from += length;
  });
  write_foreign_pieces(std::span(rows).first(count));
}

uint64_t OrderedCopies::add(const copy::Shape& shape, const copy::Rows& host, bool fetch,
                            Memory memory, const Hold& hold, bool written) {
  std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  if (lost_) {  // the call that follows fails
    if (hold.held) holds_.release(hold.device);
    return id;
  }
  Map::iterator added;
  if (unused_.empty()) {
    added = copies_.emplace_hint(copies_.end(), id, Copy());
  } else {
    unused_.back().key() = id;
    unused_.back().mapped() = Copy();
    added = copies_.insert(copies_.end(), std::move(unused_.back()));
    unused_.pop_back();
  }
  Copy& copy = added->second;
  copy.shape = shape;
  copy.host = host;
  copy.span = span_of(shape, host);
  copy.bytes = shape.bytes();
  copy.fetch = fetch;
  copy.memory = memory;
  copy.hold = hold;
  copy.packed = is_dense(shape, host);
  copy.written = written;
  if (!hold.held) unheld_bytes_.fetch_add(copy.bytes, std::memory_order_relaxed);
  if (copies_.size() == 1) observers_.add(Observers::kCopies);
  return id;
}

uint64_t OrderedCopies::add_delivery(const copy::Shape& shape, const copy::Rows& host,
                                     const Hold& hold, bool written, Memory memory) {
  return add(shape, host, /*fetch=*/false, memory, hold, written);
}

uint64_t OrderedCopies::add_fetch(const copy::Shape& shape, const copy::Rows& host,
                                  uint16_t held_device, Memory memory) {
  return add(shape, host, /*fetch=*/true, memory, {.held = true, .device = held_device}, false);
}

uint64_t OrderedCopies::add_barrier(uint16_t held_device) {
  return add({0, 0, 0}, {}, /*fetch=*/true, Memory::kOurs, {.held = true, .device = held_device},
             false);
}

void OrderedCopies::show(uint64_t address, uint64_t bytes) {
  if (!observers_.any(Observers::kCopies)) return;
  std::lock_guard lock(mutex_);
  for (auto& [id, copy] : copies_) {
    if (!copy.touches(address, bytes) || copy.fetch || copy.hold.acknowledge || copy.shown)
      continue;
    copy.shown = true;
    if (shown_++ == 0) observers_.add(Observers::kUnseenDeliveries);
  }
}

void OrderedCopies::erase(Map::iterator copy) {
  const Hold hold = copy->second.hold;
  if (copy->second.shown && --shown_ == 0) observers_.remove(Observers::kUnseenDeliveries);
  if (!hold.held) unheld_bytes_.fetch_sub(copy->second.bytes, std::memory_order_relaxed);
  Map::node_type node = copies_.extract(copy);
  if (unused_.size() < kUnusedNodes) unused_.push_back(std::move(node));
  if (copies_.empty()) observers_.remove(Observers::kCopies);
  if (hold.held) holds_.release(hold.device);
}

void OrderedCopies::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  // A copy that the worker has refused (`dropped`) ends when the refusal has been acknowledged.
  const auto found = copies_.find(id);
  if (found == copies_.end() || found->second.dropped) return;
  found->second.landed = true;  // a server may have asked for bytes and refuse the call then
  if (!found->second.sending) erase(found);
}

Result<std::span<std::byte>> OrderedCopies::target(uint64_t id, uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(id);
  if (found == copies_.end() || found->second.fetch)
    return broken("delivery", id, "it is not awaited");
  const Copy& copy = found->second;
  if (offset != copy.moved || bytes > copy.bytes - copy.moved)
    return broken("delivery", id, "bytes that are not awaited");
  if (!copy.packed) return std::span<std::byte>();
  // Our memory stays: freeing it waits for this copy.
  const uint64_t address = copy.host.address + offset;
  if (copy.memory == Memory::kRegistered && !is_accessible(address, bytes, MemoryUse::kWrite))
    return std::span<std::byte>();
  return std::span(reinterpret_cast<std::byte*>(address), bytes);
}

Status OrderedCopies::on_delivery(uint64_t id, uint64_t offset, CUresult result,
                                  std::span<const std::byte> bytes, uint64_t written) {
  std::unique_lock lock(mutex_);
  auto found = copies_.find(id);
  if (found == copies_.end() || found->second.fetch)
    return broken("delivery", id, "it is not awaited");
  if (result != CUDA_SUCCESS) {
    erase(found);
    return {};
  }
  const bool by_itself = written != 0 && bytes.empty() && found->second.written;
  const uint64_t moved = by_itself ? written : bytes.size();
  if (const Copy copy = found->second; offset != copy.moved || moved == 0 ||
                                       moved > copy.bytes - copy.moved ||
                                       (written != 0 && !by_itself)) {
    return broken("delivery", id, "bytes that are not awaited");
  } else if (const bool is_there =
                 by_itself || (copy.packed && bytes.data() == pointer(copy.host.address + offset));
             !is_there) {
    lock.unlock();
    unpack_into(copy, offset, bytes);
    lock.lock();
    found = copies_.find(id);
    if (found == copies_.end()) return {};
  }
  Copy& copy = found->second;
  copy.moved += moved;
  if (copy.moved < copy.bytes) return {};
  if (copy.hold.acknowledge) {
    queue({Task::Action::kAcknowledge, id, 0, 0});
  } else if (copy.shown) {
    queue({Task::Action::kPublish, id, 0, 0});
  } else {
    erase(found);
  }
  return {};
}

Status OrderedCopies::on_fetch(uint64_t id, uint64_t offset, uint64_t bytes, CUresult result) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(id);
  if (found == copies_.end() || !found->second.fetch || found->second.dropped)
    return broken("fetch", id, "there is no such copy");
  Copy& copy = found->second;
  if (copy.is_barrier()) {
    if (offset != 0 || bytes != 0) return broken("fetch", id, "it has no bytes");
    copy.dropped = true;
    if (result == CUDA_SUCCESS) {
      queue({Task::Action::kAcknowledge, id, 0, 0});
    } else {
      erase(found);
    }
    return {};
  }
  if (result != CUDA_SUCCESS) {
    if (copy.moved == copy.bytes) return broken("fetch", id, "all of it was asked for");
    copy.dropped = true;
    queue({Task::Action::kGiveUp, id, 0, 0});
    return {};
  }
  if (offset != copy.moved || bytes == 0 || bytes > copy.bytes - copy.moved)
    return broken("fetch", id, "bytes that it does not have");
  copy.moved += bytes;
  queue({Task::Action::kSend, id, offset, bytes});
  return {};
}

Status OrderedCopies::on_landed(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(id);
  if (found == copies_.end() || !found->second.fetch || found->second.is_barrier() ||
      found->second.sent < found->second.bytes)
    return broken("landed", id, "its bytes have not been sent");
  if (found->second.landed) return broken("landed", id, "it has landed already");
  // Whatever the server says, the memory must stay while it is read.
  found->second.landed = true;
  if (!found->second.sending) erase(found);
  return {};
}

void OrderedCopies::lost() {
  std::lock_guard lock(mutex_);
  lost_ = true;
  tasks_.clear();
  for (auto copy = copies_.begin(); copy != copies_.end();) {
    const auto here = copy++;
    if (!here->second.sending) erase(here);  // else its memory is being read
  }
}

bool OrderedCopies::finds(uint64_t address, uint64_t bytes, bool deliveries_only) const {
  if (!observers_.any(Observers::kCopies)) return false;
  std::lock_guard lock(mutex_);
  return std::any_of(copies_.begin(), copies_.end(), [&](const auto& entry) {
    const Copy& copy = entry.second;
    return !(deliveries_only && copy.fetch) && copy.touches(address, bytes);
  });
}

void OrderedCopies::queue(const Task& task) {
  tasks_.push_back(task);
  ready_.notify_one();
}

OrderedCopies::Task OrderedCopies::next() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return !tasks_.empty(); });
    const Task task = tasks_.front();
    tasks_.pop_front();
    const auto found = copies_.find(task.id);
    if (found == copies_.end()) continue;  // the session was lost meanwhile
    if (task.action == Task::Action::kSend) {
      found->second.sent = task.offset + task.bytes;
      found->second.sending = true;
    }
    return task;
  }
}

// False: some of it is not there any more.
bool OrderedCopies::read(const Copy& copy, uint64_t offset, std::span<std::byte> packed) {
  if (copy.memory == Memory::kOurs) {
    pack(copy.shape, copy.host, offset, packed);
    return true;
  }
  bool is_all = true;
  std::byte* to = packed.data();
  for_each_row(copy.shape, copy.host, offset, packed.size(), [&](uint64_t address, uint64_t bytes) {
    const size_t done = read_foreign(address, {to, bytes}).bytes;
    if (done < bytes) {
      std::memset(to + done, 0, bytes - done);
      is_all = false;
      log::error(
          "registered memory at 0x{:x}, {} bytes, was unmapped before an asynchronous copy from it "
          "was over: zeros were copied",
          address + done, bytes - done);
    }
    to += bytes;
  });
  return is_all;
}

std::span<const std::byte> OrderedCopies::part(const Task& task, uint64_t offset, uint64_t bytes,
                                               PackBuffer& packed, bool* is_missing) const {
  Copy copy;
  {
    std::lock_guard lock(mutex_);
    if (lost_) return {};
    copy = copies_.at(task.id);  // it is being sent
  }
  const uint64_t address = copy.host.address + offset;
  if (copy.packed &&
      (copy.memory == Memory::kOurs || is_accessible(address, bytes, MemoryUse::kRead)))
    return {pointer(address), bytes};
  const std::span<std::byte> to = packed.of(bytes);
  if (!read(copy, offset, to)) *is_missing = true;
  return to;
}

// With the last bytes the copy is over, unless on_landed() ends it; with the session in any case.
void OrderedCopies::done(const Task& task, bool awaits_landing) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(task.id);
  if (found == copies_.end()) return;
  Copy& copy = found->second;
  copy.sending = false;
  if (task.action != Task::Action::kSend || lost_ || copy.landed ||
      (!awaits_landing && copy.sent == copy.bytes))
    erase(found);
}

}  // namespace fargpu::client
