#include "client/nvml/query.h"

#include <kj/exception.h>
#include <pthread.h>

#include <cstring>
#include <mutex>
#include <set>

#include "common/base/log.h"
#include "common/rpc/channel.h"
#include "common/wire/data.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::nvml {
namespace {

// Once for each name.
void tell_unknown(const char* name, const std::string& server) {
  // A child of fork() must not find the mutex locked by a thread that it does not have.
  static std::mutex mutex;
  static const int registered =
      pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  (void)registered;
  static std::set<std::string>* const told = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (told->insert(name).second)
    log::warn("{}: the server {} is older and does not know it", name, server);
}

}  // namespace

void Query::put_device(nvmlDevice_t handle) {
  const Device* const device = library_.find(handle);
  if (device == nullptr) return fail(NVML_ERROR_INVALID_ARGUMENT);
  // One call is about devices of one server.
  if (connection_ != nullptr && connection_ != device->connection)
    return fail(NVML_ERROR_INVALID_ARGUMENT);
  connection_ = device->connection;
  writer_.value(device->place);
}

void Query::put_versioned(const void* versioned, std::initializer_list<Layout> known) {
  if (versioned == nullptr) return fail(NVML_ERROR_INVALID_ARGUMENT);
  const uint32_t version = version_of(versioned);
  const auto* const layout =
      std::find_if(known.begin(), known.end(),
                   [version](const Layout& each) { return each.version == version; });
  if (layout == known.end()) return fail(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  std::vector<std::byte> sent(schema::nvml_struct_bytes(version));
  std::memcpy(sent.data(), &version, sizeof version);
  const auto* const from = static_cast<const std::byte*>(versioned);
  for (const FieldBytes& field : layout->inputs)
    std::memcpy(sent.data() + field.at, from + field.at, field.bytes);
  writer_.data(sent.data(), sent.size());
}

void Query::put_fields(const void* from, uint64_t elements, size_t bytes,
                       std::initializer_list<FieldBytes> inputs) {
  std::vector<std::byte> sent(elements * bytes);
  const auto* const given = static_cast<const std::byte*>(from);
  for (size_t at = 0; at < sent.size(); at += bytes) {
    for (const FieldBytes& field : inputs)
      std::memcpy(sent.data() + at + field.at, given + at + field.at, field.bytes);
  }
  writer_.data(sent.data(), sent.size());
}

void Query::ask() {
  if (result_ != NVML_SUCCESS) return;
  const bool of_device = connection_ != nullptr;
  if (connection_ == nullptr) connection_ = &library_.first();
  std::string question;
  if (caching_ == kCached) {
    const auto bytes = writer_.bytes();
    question = connection_->server() + '\0' + std::to_string(opcode_) + '\0';
    question.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (caching_ == kAsked || !library_.recall(question, &answer_)) {
    if (connection_->lost()) return fail(of_device ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_UNKNOWN);
    if (!connection_->knows(opcode_)) {
      tell_unknown(name_, connection_->server());
      return fail(NVML_ERROR_FUNCTION_NOT_FOUND);
    }
    answer_ = exchange();
    if (connection_->lost()) return fail(of_device ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_UNKNOWN);
    const bool lasting =
        answer_.result == NVML_SUCCESS || answer_.result == NVML_ERROR_NOT_SUPPORTED;
    if (caching_ == kCached && lasting) library_.remember(question, answer_);
  }
  asked_ = true;
  result_ = answer_.result;
  reader_ = schema::PackedReader(std::as_bytes(std::span(answer_.outputs)));
}

Library::Answer Query::exchange() {
  const auto arguments = writer_.bytes();
  rpc::Reply reply;
  rpc::Channel::Call call(connection_->channel(), opcode_, 0, arguments.size() + 64);
  call.init<schema::NvmlCall>().setArguments(wire::as_data(arguments));
  const auto deadline = transport::Clock::now() + connection_->patience();
  if (const Status status = call.call_until(reply, deadline); !status.ok()) {
    log::debug("{}: {}", name_, status.message());
    if (status.code() == StatusCode::kTimeout) connection_->give_up(name_);
    return {};
  }
  if (reply.result != 0) return {static_cast<nvmlReturn_t>(reply.result), {}};
  try {
    const auto root = reply.root<schema::NvmlCall>();
    const auto outputs = wire::as_bytes(root.getArguments());
    Library::Answer answer{static_cast<nvmlReturn_t>(root.getResult()), {}};
    answer.outputs.resize((outputs.size() + 7) / 8);
    if (!outputs.empty()) std::memcpy(answer.outputs.data(), outputs.data(), outputs.size());
    return answer;
  } catch (const kj::Exception&) {
    connection_->end(name_);
    return {};
  }
}

void Query::take_data(void* to, uint64_t bytes) {
  if (take_up_to(to, bytes, 1) != bytes && result_ == NVML_SUCCESS && to != nullptr) reader_.fail();
}

void Query::take_versioned(void* to, uint32_t version) {
  take_data(to, schema::nvml_struct_bytes(version));
  if (took(to)) std::memcpy(to, &version, sizeof version);
}

void Query::take_text(char* to, uint64_t room) {
  const uint64_t bytes = take_up_to(to, room, 1);
  if (result_ == NVML_SUCCESS && to != nullptr && room > 0) to[std::min(bytes, room - 1)] = '\0';
}

uint64_t Query::take_up_to(void* to, uint64_t bytes, uint64_t element) {
  if (result_ != NVML_SUCCESS || to == nullptr) return 0;
  const auto data = reader_.data();
  if (data.size() > bytes || data.size() % element != 0) {
    reader_.fail();
    return 0;
  }
  if (!data.empty()) std::memcpy(to, data.data(), data.size());
  return data.size();
}

nvmlReturn_t Query::end() {
  if (asked_ && !reader_.finished()) {
    connection_->end(name_);
    return NVML_ERROR_UNKNOWN;
  }
  return result_;
}

}  // namespace fargpu::nvml
