#include "sim/work/user_object.h"

#include "sim/base/task_queue.h"
#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

// Never destroyed: destructors may be due while the process exits.
TaskQueue& destructors() {
  static const auto* queue = new std::shared_ptr<TaskQueue>(std::make_shared<TaskQueue>());
  return **queue;
}

}  // namespace

void UserObject::release(uint64_t count) {
  if (references_.fetch_sub(count) != count || ended_.exchange(true)) return;
  Driver::get().registry().remove<UserObject>(handle_);
  const auto run = [self = shared_from_this()] {
    const HostFunctionScope scope;
    self->destroy_(self->data_);
  };
  destructors().push(Task{run, {}, std::make_shared<Completion>()});
}

ObjectReferences::ObjectReferences(const ObjectReferences& other) : counts_(other.counts_) {
  for (const auto& [object, count] : counts_) object->retain(count);
}

ObjectReferences& ObjectReferences::operator=(const ObjectReferences& other) {
  ObjectReferences copy(other);
  std::swap(counts_, copy.counts_);
  return *this;
}

ObjectReferences::~ObjectReferences() {
  for (const auto& [object, count] : counts_) object->release(count);
}

bool ObjectReferences::release(const std::shared_ptr<UserObject>& object, uint64_t count) {
  const auto found = counts_.find(object);
  if (found == counts_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  object->release(count);
  return true;
}

}  // namespace fargpu::sim
