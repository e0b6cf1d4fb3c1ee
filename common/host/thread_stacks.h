// Where the threads of this process have their stacks. The system knows that of the calling thread
// alone, so threads note theirs. Any thread; takes no lock.
#pragma once

#include <cstdint>

namespace fargpu {

struct StackRange {
  uint64_t begin = 0, end = 0;
  bool holds(uint64_t address) const { return address >= begin && address < end; }
};

// That of the calling thread, known to others until the thread ends. Costs a load after the first
// time.
StackRange note_this_stack();

// Whether any of the bytes lie on the stack of this thread or of one that has noted it. True as
// well when that is not known: the system did not say, or too many threads have noted theirs.
bool is_on_a_stack(uint64_t begin, uint64_t end);

}  // namespace fargpu
