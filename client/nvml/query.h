// Query: one call of NVML that the server answers. Generated code puts the arguments in, in their
// order, asks, and takes the outputs out. An error of an argument or of the session is kept, and
// later steps do nothing: end() returns the result. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "client/nvml/library.h"
#include "schema/support/nvml_version.h"
#include "schema/support/packed.h"

namespace fargpu::nvml {

// A number of elements, limited by the size of an item.
template <typename Count>
Count limited(Count count, size_t element) {
  const uint64_t most = schema::kMaxItemBytes / element;
  return static_cast<uint64_t>(count) > most ? static_cast<Count>(most) : count;
}

// The first word of a versioned struct; 0 for NULL.
inline uint32_t version_of(const void* versioned) {
  uint32_t version = 0;
  if (versioned != nullptr) std::memcpy(&version, versioned, sizeof version);
  return version;
}

// A field of a struct, and a layout of a versioned one with the fields that a function reads.
struct FieldBytes {
  size_t at, bytes;
};
struct Layout {
  uint32_t version;
  std::initializer_list<FieldBytes> inputs;
};

class Query {
 public:
  enum Caching { kAsked, kCached };
  // `name`: for the log; lives for ever.
  Query(Library& library, uint16_t opcode, const char* name, Caching caching = kAsked)
      : library_(library), opcode_(opcode), name_(name), caching_(caching) {}

  void put_device(nvmlDevice_t handle);
  template <schema::PackedValue T>
  void put_value(T value) {
    writer_.value(value);
  }
  // A pointer; `optional`: it may be NULL.
  void place(const void* pointer, bool optional) {
    if (optional) {
      writer_.value<uint64_t>(pointer != nullptr ? 1 : 0);
    } else if (pointer == nullptr) {
      fail(NVML_ERROR_INVALID_ARGUMENT);
    }
  }
  // Of a struct only the inputs are sent, and zeros for the rest, which the caller need not have
  // set.
  void put_versioned(const void* versioned, std::initializer_list<Layout> known);
  // Nothing for NULL.
  template <typename T, typename Count>
  void put_inputs(const T* array, Count count, std::initializer_list<FieldBytes> inputs) {
    const auto elements = static_cast<uint64_t>(count);
    if (elements > schema::kMaxItemBytes / sizeof(T)) return fail(NVML_ERROR_INVALID_ARGUMENT);
    if (array != nullptr) put_fields(array, elements, sizeof(T), inputs);
  }

  void ask();

  template <schema::PackedValue T>
  void take_value(T* to) {
    if (result_ == NVML_SUCCESS && to != nullptr) *to = reader_.value<T>();
  }
  // Also when there was not enough room for something else.
  template <schema::PackedValue T>
  void take_value_always(T* to) {
    if ((result_ == NVML_SUCCESS || result_ == NVML_ERROR_INSUFFICIENT_SIZE) && to != nullptr &&
        asked_) {
      *to = reader_.value<T>();
    }
  }
  void take_data(void* to, uint64_t bytes);
  // The version stays the caller's.
  void take_versioned(void* to, uint32_t version);
  // Whether the item just taken has an answer.
  bool took(const void* to) const {
    return result_ == NVML_SUCCESS && to != nullptr && !reader_.broken();
  }
  // How many elements came.
  template <typename T>
  uint64_t take_array(T* to, uint64_t room) {
    return take_up_to(to, room * sizeof(T), sizeof(T)) / sizeof(T);
  }
  // Ends the session if another number of elements came than the server says, and then leaves no
  // number that the caller could take for that of valid elements.
  template <typename Count>
  void expect(const void* array, uint64_t taken, Count* count) {
    if (count == nullptr || !is_wrong(array, taken, static_cast<uint64_t>(*count))) return;
    *count = 0;
  }
  void expect(const void* array, uint64_t taken, uint64_t count) {
    (void)is_wrong(array, taken, count);
  }
  // With its end, as far as there is room.
  void take_text(char* to, uint64_t room);

  nvmlReturn_t end();

 private:
  bool is_wrong(const void* array, uint64_t taken, uint64_t count) {
    if (result_ != NVML_SUCCESS || array == nullptr || taken == count) return false;
    reader_.fail();
    return true;
  }
  void fail(nvmlReturn_t result) {
    if (result_ == NVML_SUCCESS) result_ = result;
  }
  void put_fields(const void* from, uint64_t elements, size_t bytes,
                  std::initializer_list<FieldBytes> inputs);
  // How many bytes came.
  uint64_t take_up_to(void* to, uint64_t bytes, uint64_t element);
  Library::Answer exchange();

  Library& library_;
  const uint16_t opcode_;
  const char* const name_;
  const Caching caching_;
  Connection* connection_ = nullptr;  // of the devices that were put
  nvmlReturn_t result_ = NVML_SUCCESS;
  bool asked_ = false;
  schema::PackedWriter writer_;
  Library::Answer answer_;
  schema::PackedReader reader_;
};

}  // namespace fargpu::nvml
