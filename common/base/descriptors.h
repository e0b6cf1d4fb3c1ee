// Where descriptors get their numbers.
//
// A program that uses the client libraries may have closed 0, 1 and 2 and go on writing there, may
// close unknown descriptors, and opens files, which get the lowest free numbers. So after
// in_foreign_process() every descriptor made here is above 2 at any moment and is moved out of the
// program's way: above its limit of open files where the hard limit has room (no loop to that limit
// closes it, and no file that the program opens gets its number), else as high as the limit lets.
// All are close-on-exec. In processes of our own (daemon, worker, tools) nothing is moved; their
// main() calls open_standard() first.
//
// Thread-safe; usable in a child of fork(). Not for signal handlers.
#pragma once

#include <sys/types.h>

#include <utility>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::descriptors {

// Called once, when a library of ours is loaded.
void in_foreign_process();
bool is_foreign_process();

// Opens closed ones of 0, 1 and 2 as /dev/null. `inherited`: programs that are executed have them,
// too.
void open_standard(bool inherited);

// While one lives, no new descriptor of the process, fargpu's or the program's, gets the number 0,
// 1 or 2: closed ones are occupied by something that can be neither read nor written. For calls of
// other libraries that open files. Nests. Keeps errno.
class StandardTaken {
 public:
  StandardTaken();
  ~StandardTaken();
  StandardTaken(const StandardTaken&) = delete;
  StandardTaken& operator=(const StandardTaken&) = delete;
};

// Moves a fresh descriptor out of the program's way. Not valid, with errno, if there is no number.
Fd place(Fd fresh);

// The number of a descriptor of ours; -1 if the program has closed it, even if the number is in use
// again. To be asked where a number is read, written, shut down or closed that the program had time
// to close. One system call in a foreign process, none elsewhere.
int own(int number);
// The same, and gives the number up: before it is closed.
int disown(int number);

// The descriptor that `open_it` returns, in its place; not valid, with errno, if it returned -1.
template <typename Open>
Fd make(Open&& open_it) {
  const StandardTaken taken;
  return place(Fd(static_cast<int>(std::forward<Open>(open_it)())));
}

// socketpair(2) of unix sockets.
Status make_pair(int type, Fd& one, Fd& other);

// open(2) with O_CLOEXEC, also of a path that is slow to open.
Fd open_file(const char* path, int flags, mode_t mode = 0);

}  // namespace fargpu::descriptors
