#include "common/copy/copy.h"

#include <cstring>

namespace fargpu::copy {
namespace {

using Kind = Location::Kind;

bool is_possible(const Shape& shape, const Location& end, bool in_one_call) {
  // Packed rows are as possible as the rows at the other end.
  if (end.kind != Kind::kDevice && end.kind != Kind::kShared) return true;
  return span_of(shape, end.rows) != 0 && (!in_one_call || has_whole_slices(shape, end.rows));
}

const char* judge(const Copy& copy) {
  if ((copy.from.kind == Kind::kDevice) == (copy.to.kind == Kind::kDevice))
    return "one end must be device memory";
  const bool shared = copy.host().kind == Kind::kShared;
  if (!is_possible(copy.shape, copy.from, shared) || !is_possible(copy.shape, copy.to, shared))
    return "a shape that is not possible";
  if (copy.order != Order::kStream && !copy.to_device())
    return "only copies to the device have an order";
  const Completion::Kind end = copy.completion.kind;
  if (copy.completion.hold != Hold::kNever && end != Completion::Kind::kFollow)
    return "only copies that follow their stream hold it";
  return nullptr;
}

}  // namespace

const char* decode(std::span<const std::byte> words, Copy* copy) {
  if (words.size() > Words::kMost * sizeof(uint64_t) || words.size() % sizeof(uint64_t) != 0)
    return "a description of the wrong size";
  std::array<uint64_t, Words::kMost> all{};
  if (!words.empty()) std::memcpy(all.data(), words.data(), words.size());
  const auto choice = [&all](unsigned at) { return static_cast<uint8_t>(all[0] >> 8 * at); };
  if (all[0] >> 40 != 0) return "a choice that does not exist";
  if (choice(0) > static_cast<uint8_t>(Kind::kRemote) ||
      choice(1) > static_cast<uint8_t>(Kind::kRemote))
    return "a kind of memory that does not exist";
  if (choice(2) > static_cast<uint8_t>(Completion::Kind::kFollow))
    return "an end that does not exist";
  if (choice(3) > static_cast<uint8_t>(Order::kReturned)) return "an order that does not exist";
  if (choice(4) > static_cast<uint8_t>(Hold::kUntilDelivered)) return "a hold that does not exist";
  Copy made;
  made.from.kind = static_cast<Kind>(choice(0));
  made.to.kind = static_cast<Kind>(choice(1));
  made.shape = {all[2], all[3], all[4]};
  made.completion = {static_cast<Completion::Kind>(choice(2)), static_cast<Hold>(choice(4)), all[5],
                     all[7]};
  made.order = static_cast<Order>(choice(3));
  Location& device = made.to_device() ? made.to : made.from;
  Location& host = made.to_device() ? made.from : made.to;
  device.rows = {all[1], all[8], all[9]};
  if (host.kind == Kind::kShared) host.rows = {all[6], all[10], all[11]};
  if (host.kind == Kind::kRemote)
    host = Location::in({all[13], all[14], static_cast<uint32_t>(all[15])}, all[12]);
  if (const char* const wrong = judge(made)) return wrong;
  *copy = made;
  return nullptr;
}

}  // namespace fargpu::copy
