// PageGate: memory of the application whose accesses can be made to wait until its contents are
// there. Parts of it are open or closed; an access to a closed part waits, also in a system call
// like read(2), and its address is reported to the serving thread.
//
// Offsets and sizes are whole pages; the last part may end inside a page. Memory of the application
// itself (is_moved()) may begin and end inside pages: these parts never close.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fargpu::client {

class PageGate {
 public:
  // Of memory that is_moved(): what closes as a whole.
  static constexpr size_t kBlock = size_t{64} << 10;

  virtual ~PageGate() = default;
  // The same memory elsewhere, always accessible for fargpu. If it is moved, that holds for closed
  // parts alone. The application may have unmapped the others, or may have its own there.
  virtual std::byte* local() const = 0;
  virtual bool is_moved() const { return false; }
  // Bytes at either end that never close.
  virtual size_t head() const { return 0; }
  virtual size_t tail() const { return 0; }
  // From the first close() on it must stay open or be served. False: the system refuses, and
  // everything is open as before.
  virtual bool watch() = 0;
  // How many of the bytes, from the first one on, are closed now: whole blocks.
  virtual size_t close(size_t offset, size_t bytes) = 0;
  // Accesses that wait go on.
  virtual void open(size_t offset, size_t bytes) = 0;
  // An access ends the program: SIGSEGV, and EFAULT in system calls. Moved memory is opened as it
  // is.
  virtual void fail(size_t offset, size_t bytes) = 0;
  // Opens all closed parts and stops watching.
  virtual void unwatch() = 0;
};

}  // namespace fargpu::client
