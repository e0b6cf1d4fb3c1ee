#include "client/memory/dual_gate.h"

#include <sys/mman.h>

#include "client/memory/user_faults.h"
#include "common/host/memory_page.h"

namespace fargpu::client {

bool DualGate::protect(size_t offset, size_t bytes, int protection) const {
  return ::mprotect(as_pointer(address_ + offset), page_from(bytes), protection) == 0;
}

bool DualGate::begin(bool is_open) {
  if (faults_ == nullptr) return !is_open || open_as(0, bytes_, true);
  // Pages that wait are not mapped; their contents are in the file. The protection only says
  // whether there is an allocation.
  return (is_open || watch()) && protect(0, bytes_, PROT_READ | PROT_WRITE);
}

bool DualGate::watch() {
  is_watched_ = faults_ == nullptr || faults_->watch(address_, bytes_);
  return is_watched_;
}

void DualGate::unwatch() {
  is_watched_ = false;
  if (faults_ != nullptr) faults_->unwatch(address_, bytes_);
}

size_t DualGate::close(size_t offset, size_t bytes) {
  if (faults_ == nullptr) return protect(offset, bytes, PROT_NONE) ? bytes : 0;
  if (!is_watched_ && !DualGate::watch()) return 0;
  UserFaults::close(address_ + offset, bytes);
  return bytes;
}

bool DualGate::open_as(size_t offset, size_t bytes, bool writable) {
  if (faults_ == nullptr)
    return protect(offset, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  return faults_->open(address_ + offset, bytes, writable, local_ + offset);
}

bool DualGate::let_write(size_t offset, size_t bytes) {
  // Otherwise each page would fault once more, in the system.
  if (faults_ != nullptr) UserFaults::close(address_ + offset, bytes);
  return open_as(offset, bytes, true);
}

void DualGate::fail(size_t offset, size_t bytes) {
  if (faults_ == nullptr) return;  // the handler says so
  (void)protect(offset, bytes, PROT_NONE);
  faults_->retry(address_ + offset, bytes);
}

void DualGate::revive() {
  if (faults_ != nullptr) (void)protect(0, bytes_, PROT_READ | PROT_WRITE);
}

void DualGate::end() {
  (void)protect(0, bytes_, PROT_NONE);
  if (faults_ != nullptr) UserFaults::close(address_, bytes_);
  unwatch();
}

}  // namespace fargpu::client
