// The description of a copy that a peer wrote. What decode() accepts names rows that lie in the
// address space one after the other, or a part of an array whose end can be said. It is cut into
// pieces that cover it, and travels back unchanged.
#include <cstdint>
#include <cstdlib>

#include "common/copy/copy.h"

using namespace fargpu::copy;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_pieces(const Copy& copy, uint64_t limit) {
  const Rows& rows = copy.device().rows;
  const ArrayPosition& position = copy.device().position;
  const bool in_array = copy.device().kind == Location::Kind::kArray;
  const uint64_t end = rows.address + span_of(copy.shape, rows);
  uint64_t covered = 0;
  for_each_piece(copy.shape, limit, [&](const Piece& piece) {
    require(piece.offset == covered && piece.bytes > 0 && piece.bytes <= limit);
    if (in_array) {
      const ArrayPosition part = piece.of(position);
      require(is_possible(piece.shape, part) && part.array == position.array &&
              part.x + piece.shape.width <= position.x + copy.shape.width &&
              part.y + piece.shape.height <= position.y + copy.shape.height &&
              part.z + piece.shape.depth <= position.z + copy.shape.depth);
    } else {
      const Rows part = piece.of(rows);
      const uint64_t span = span_of(piece.shape, part);
      require(span != 0 && part.address >= rows.address && part.address + span <= end);
    }
    covered += piece.bytes;
    return 0;
  });
  require(covered == copy.shape.bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Copy copy;
  if (decode({reinterpret_cast<const std::byte*>(data), size}, &copy) != nullptr) return 0;
  const uint64_t bytes = copy.shape.bytes();
  require(bytes > 0);
  if (copy.device().kind == Location::Kind::kArray) {
    require(is_possible(copy.shape, copy.device().position));
  } else {
    require(span_of(copy.shape, copy.device().rows) >=
            bytes / copy.shape.depth / copy.shape.height);
  }
  if (bytes < 1u << 20 && copy.shape.depth * copy.shape.height < 1u << 12)
    for (const uint64_t limit : {bytes / 3 + 1, bytes, copy.shape.width}) check_pieces(copy, limit);
  const Words words = encode(copy);
  Copy again;
  require(decode({static_cast<const std::byte*>(words.data()), words.bytes()}, &again) == nullptr);
  require(again.shape == copy.shape && again.device().rows == copy.device().rows &&
          again.from.position == copy.from.position && again.to.position == copy.to.position &&
          again.host().rows == copy.host().rows && again.host().offset == copy.host().offset &&
          again.order == copy.order && again.completion.number == copy.completion.number);
  return 0;
}
