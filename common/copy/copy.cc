#include "common/copy/copy.h"

#include <algorithm>
#include <cstring>

namespace fargpu::copy {
namespace {

using Kind = Location::Kind;

bool is_possible(const Shape& shape, const Location& end) {
  if (end.kind == Kind::kArray) return copy::is_possible(shape, end.position);
  // Packed rows are as possible as the rows at the other end.
  if (end.kind != Kind::kDevice && end.kind != Kind::kShared) return true;
  return span_of(shape, end.rows) != 0;
}

// The words of an end that is no host memory of the client.
struct EndWords {
  size_t first, pitch, slice, z;
};
constexpr EndWords kDeviceEnd{1, 8, 9, 16}, kOtherEnd{6, 10, 11, 17};

using AllWords = std::array<uint64_t, Words::kMost>;

void read_end(const AllWords& words, const EndWords& at, Location* end) {
  if (end->kind == Kind::kArray) {
    end->position = {words[at.first], words[at.pitch], words[at.slice], words[at.z]};
  } else {
    end->rows = {words[at.first], words[at.pitch], words[at.slice]};
  }
}

void write_end(const Location& end, const EndWords& at, AllWords& words) {
  if (end.kind != Kind::kArray) return;
  words[at.first] = end.position.array;
  words[at.pitch] = end.position.x;
  words[at.slice] = end.position.y;
  words[at.z] = end.position.z;
}

const char* judge(const Copy& copy) {
  if (!copy.from.on_device() && !copy.to.on_device()) return "one end must be device memory";
  // Linear memory has calls of its own.
  if (copy.inside() && copy.from.kind == Kind::kDevice && copy.to.kind == Kind::kDevice)
    return "one end must be something else than device memory";
  if (!is_possible(copy.shape, copy.from) || !is_possible(copy.shape, copy.to))
    return "a shape that is not possible";
  if (copy.order != Order::kStream && !copy.to_device())
    return "only copies to the device have an order";
  const Completion::Kind end = copy.completion.kind;
  if (copy.completion.hold == Hold::kSourceStands && !copy.to_device())
    return "only a copy to the device has such a hold";
  if (copy.completion.hold != Hold::kNever && end != Completion::Kind::kFollow)
    return "only copies that follow their stream hold it";
  return nullptr;
}

// Whether words that this copy has no use for say something, perhaps of a later release.
bool says_more(const Copy& copy, const AllWords& words) {
  const Kind host = copy.host().kind;
  const Completion::Kind end = copy.completion.kind;
  const bool has_number = end != Completion::Kind::kNothing && end != Completion::Kind::kReply;
  const auto any = [&words](size_t from, size_t to) {
    return std::any_of(words.begin() + from, words.begin() + to,
                       [](uint64_t word) { return word != 0; });
  };
  return (!has_number && words[5] != 0) || (end != Completion::Kind::kWord && words[7] != 0) ||
         (host != Kind::kShared && !copy.inside() && (words[6] != 0 || any(10, 12))) ||
         (host != Kind::kRemote && any(12, 16)) || words[15] >> 32 != 0 ||
         (copy.device().kind != Kind::kArray && words[kDeviceEnd.z] != 0) ||
         (host != Kind::kArray && words[kOtherEnd.z] != 0);
}

}  // namespace

Words with_arrays(const Copy& copy, Words words) {
  const Location &device = copy.device(), &host = copy.host();
  std::fill(words.words.begin() + 12, words.words.end(), 0);
  write_end(device, kDeviceEnd, words.words);
  write_end(host, kOtherEnd, words.words);
  if (host.kind == Kind::kRemote) {
    words.words[12] = host.offset;
    words.words[13] = host.remote.address;
    words.words[14] = host.remote.bytes;
    words.words[15] = host.remote.key;
  }
  words.count = Words::kMost;
  while (words.words[words.count - 1] == 0) --words.count;
  return words;
}

const char* decode(std::span<const std::byte> words, Copy* copy) {
  if (words.size() > Words::kMost * sizeof(uint64_t) || words.size() % sizeof(uint64_t) != 0)
    return "a description of the wrong size";
  AllWords all{};
  if (!words.empty()) std::memcpy(all.data(), words.data(), words.size());
  const auto choice = [&all](unsigned at) { return static_cast<uint8_t>(all[0] >> 8 * at); };
  if (all[0] >> 40 != 0) return "a choice that does not exist";
  if (choice(0) > static_cast<uint8_t>(Kind::kArray) ||
      choice(1) > static_cast<uint8_t>(Kind::kArray))
    return "a kind of memory that does not exist";
  if (choice(2) > static_cast<uint8_t>(Completion::Kind::kAmended))
    return "an end that does not exist";
  if (choice(3) > static_cast<uint8_t>(Order::kOwnStream)) return "an order that does not exist";
  if (choice(4) > static_cast<uint8_t>(Hold::kSourceStands)) return "a hold that does not exist";
  Copy made;
  made.from.kind = static_cast<Kind>(choice(0));
  made.to.kind = static_cast<Kind>(choice(1));
  made.shape = {all[2], all[3], all[4]};
  made.completion = {static_cast<Completion::Kind>(choice(2)), static_cast<Hold>(choice(4)), all[5],
                     all[7]};
  made.order = static_cast<Order>(choice(3));
  Location& device = made.to_device() ? made.to : made.from;
  Location& host = made.to_device() ? made.from : made.to;
  read_end(all, kDeviceEnd, &device);
  if (host.kind == Kind::kShared || host.on_device()) read_end(all, kOtherEnd, &host);
  if (host.kind == Kind::kRemote)
    host = Location::in({all[13], all[14], static_cast<uint32_t>(all[15])}, all[12]);
  if (says_more(made, all)) return "a word that has no meaning here";
  if (const char* const wrong = judge(made)) return wrong;
  *copy = made;
  return nullptr;
}

}  // namespace fargpu::copy
