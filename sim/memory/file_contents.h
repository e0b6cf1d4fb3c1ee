// FileContents: the contents of a memory file, taken out of it for a while. Not thread safe; the
// file is not used meanwhile.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace fargpu::sim {

class FileContents {
 public:
  // Afterwards the file reads as zeros and needs no memory. Throws std::bad_alloc, and the file is
  // as before. False: the system refuses, likewise.
  bool take_out(int descriptor);
  // Of the file that it was taken from. False: there is no memory for it; may be tried again.
  bool put_back(int descriptor) const;

 private:
  struct Piece {
    off_t offset;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces_;
};

}  // namespace fargpu::sim
