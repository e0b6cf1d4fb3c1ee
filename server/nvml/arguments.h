// The arguments of one NVML call, checked, and its outputs, for generated server halves. The bytes
// come from the client; an error in them is kept until complete(), and later reads return empty
// values. One thread; lives for one call.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "schema/nvml/nvml.h"
#include "schema/support/nvml_version.h"
#include "schema/support/packed.h"
#include "server/nvml/desk.h"

namespace fargpu::server {

// An array that the client gave, or has room for; without elements and pointer if it gave NULL.
template <typename T>
class Array {
 public:
  Array() = default;
  Array(size_t count, bool there) : elements_(there ? count : 0), there_(there) {}
  // NULL stays NULL; room for no elements is not.
  T* pointer() { return there_ ? (elements_.empty() ? &none_ : elements_.data()) : nullptr; }
  const T* pointer() const { return const_cast<Array*>(this)->pointer(); }
  std::span<T> elements() { return elements_; }
  size_t size() const { return elements_.size(); }
  bool there() const { return there_; }

 private:
  std::vector<T> elements_;
  T none_{};
  bool there_ = false;
};

// A struct whose first word says how large it is.
class VersionedStruct {
 public:
  VersionedStruct() = default;
  explicit VersionedStruct(std::span<const std::byte> bytes)
      : words_((bytes.size() + 7) / 8), bytes_(bytes.size()) {
    std::memcpy(words_.data(), bytes.data(), bytes.size());
  }
  void* pointer() { return words_.data(); }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<uint64_t> words_;
  size_t bytes_ = 0;
};

class NvmlArguments {
 public:
  explicit NvmlArguments(std::span<const std::byte> bytes) : reader_(bytes) {}

  nvmlDevice_t device(const Desk& desk) {
    const nvmlDevice_t found = desk.device(value<uint64_t>());
    if (found == nullptr) refuse(NVML_ERROR_INVALID_ARGUMENT);
    return found;
  }
  template <typename T>
  T value() {
    return reader_.value<T>();
  }
  // Whether the client gave a pointer. Not `optional`: it did, and the message does not say so.
  bool is_there(bool optional) { return !optional || reader_.value<uint64_t>() != 0; }
  VersionedStruct versioned(std::initializer_list<uint32_t> known);
  // As many as there are; expect() says how many there must be.
  template <typename T>
  Array<T> array(bool there) {
    if (!there) return {};
    const auto bytes = reader_.data();
    if (bytes.size() % sizeof(T) != 0) reader_.fail();
    if (reader_.broken()) return {};
    Array<T> result(bytes.size() / sizeof(T), true);
    if (!bytes.empty()) std::memcpy(result.pointer(), bytes.data(), bytes.size());
    return result;
  }
  template <typename T, typename Count>
  void expect(const Array<T>& array, Count count) {
    if (array.there() && array.size() != static_cast<uint64_t>(count)) reader_.fail();
  }
  // For an output: as the other arguments say.
  template <typename T, typename Count>
  Array<T> room(bool there, Count count) {
    const auto elements = static_cast<uint64_t>(count);
    if (there && elements > schema::kMaxItemBytes / sizeof(T)) reader_.fail();
    return reader_.broken() ? Array<T>() : Array<T>(elements, there);
  }

  // Everything was there and nothing is wrong; else result() has the reason, unless the message is
  // malformed().
  bool complete() const { return !malformed() && result_ == NVML_SUCCESS; }
  nvmlReturn_t result() const { return result_; }
  bool malformed() const { return !reader_.finished(); }

 private:
  void refuse(nvmlReturn_t result) {
    if (result_ == NVML_SUCCESS) result_ = result;
  }

  schema::PackedReader reader_;
  nvmlReturn_t result_ = NVML_SUCCESS;
};

class NvmlOutputs {
 public:
  // The function has returned. Outputs of a failure are dropped, except required sizes.
  void begin(nvmlReturn_t result) { result_ = result; }
  template <typename T>
  void value(const T& value) {
    if (result_ == NVML_SUCCESS) writer_.value(value);
  }
  template <typename T>
  void value_always(const T& value) {
    if (result_ == NVML_SUCCESS || result_ == NVML_ERROR_INSUFFICIENT_SIZE) writer_.value(value);
  }
  void data(const void* bytes, size_t count) {
    if (result_ == NVML_SUCCESS) writer_.data(bytes, count);
  }
  void versioned(VersionedStruct& value) { data(value.pointer(), value.bytes()); }
  void text(Array<char>& text);
  // `count`: how many elements there are now.
  template <typename T, typename Count>
  void array(Array<T>& array, Count count) {
    const auto have = std::min<uint64_t>(array.elements().size(), static_cast<uint64_t>(count));
    if (array.there()) data(array.pointer(), have * sizeof(T));
  }
  nvmlReturn_t result() const { return result_; }
  std::span<const std::byte> bytes() const { return writer_.bytes(); }

 private:
  schema::PackedWriter writer_;
  nvmlReturn_t result_ = NVML_SUCCESS;
};

}  // namespace fargpu::server
