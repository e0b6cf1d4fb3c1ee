#include "common/wire/fixed_message.h"

namespace fargpu::wire {
namespace {

using capnp::_::StructBuilder;

void put_data_section(StructBuilder& builder, void* data);

// Cap'n Proto makes a builder only together with the segment that it takes memory from. Setting
// numbers needs the address of the data section alone; the explicit instantiation may name it.
template <auto kMember>
struct DataSection {
  friend void put_data_section(StructBuilder& builder, void* data) { builder.*kMember = data; }
};
template struct DataSection<&StructBuilder::data>;

}  // namespace

StructBuilder numbers_at(uint64_t* data) {
  StructBuilder builder;
  put_data_section(builder, data);
  return builder;
}

}  // namespace fargpu::wire
