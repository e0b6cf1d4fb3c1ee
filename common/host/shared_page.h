// SharedPage: memory that two processes map, one of which made it. A sealed memfd: its size cannot
// change, so that neither end dies of SIGBUS because of the other.
//
// Moves, does not copy; unmaps at its end. Its users define the contents: both may write at any
// time. One thread for each object, any thread for the memory.
#pragma once

#include <cstddef>
#include <utility>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu {

class SharedPage {
 public:
  enum class Access { kRead, kReadAndWrite };

  SharedPage() = default;
  // A new one of at least `bytes`, all zero; descriptor() is for the other process. kRead: the
  // other end's access, as far as the system can enforce it (Linux 5.1).
  static Result<SharedPage> create(const char* name, size_t bytes,
                                   Access of_others = Access::kReadAndWrite);
  // The page behind an inherited descriptor, which is closed. kProtocol: it is smaller, or its size
  // could change.
  static Result<SharedPage> open(Fd descriptor, size_t bytes,
                                 Access access = Access::kReadAndWrite);
  SharedPage(SharedPage&& other) noexcept;
  SharedPage& operator=(SharedPage&& other) noexcept;
  ~SharedPage();

  std::byte* data() const { return data_; }  // page-aligned
  size_t bytes() const { return bytes_; }    // that are mapped
  int descriptor() const { return fd_.get(); }
  // The mapping stays.
  void close_descriptor() { fd_.reset(); }

 private:
  static Result<SharedPage> map(Fd fd, size_t bytes, Access access);
  SharedPage(Fd fd, std::byte* data, size_t bytes)
      : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

  Fd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// One T in a shared page, which begins as all zero; T is made for that. Fields of a later release
// are added at its end.
template <typename T>
class SharedValue {
 public:
  static Result<SharedValue> create(
      const char* name, SharedPage::Access of_others = SharedPage::Access::kReadAndWrite) {
    FARGPU_ASSIGN_OR_RETURN(SharedPage page, SharedPage::create(name, sizeof(T), of_others));
    return SharedValue(std::move(page));
  }
  static Result<SharedValue> open(Fd descriptor,
                                  SharedPage::Access access = SharedPage::Access::kReadAndWrite) {
    FARGPU_ASSIGN_OR_RETURN(SharedPage page,
                            SharedPage::open(std::move(descriptor), sizeof(T), access));
    return SharedValue(std::move(page));
  }
  T& operator*() const { return *reinterpret_cast<T*>(page_.data()); }
  T* operator->() const { return &**this; }
  int descriptor() const { return page_.descriptor(); }
  void close_descriptor() { page_.close_descriptor(); }

 private:
  explicit SharedValue(SharedPage page) : page_(std::move(page)) {}
  SharedPage page_;
};

}  // namespace fargpu
