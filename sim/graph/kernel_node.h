// The operation of a kernel node, whose attributes can be asked for and changed.
#pragma once

#include <map>
#include <vector>

#include "sim/driver/context.h"
#include "sim/graph/operation.h"
#include "sim/work/kernel_work.h"

namespace fargpu::sim {

using KernelAttributes = std::map<int, CUlaunchAttributeValue>;

class KernelOperation final : public Operation {
 public:
  // `as_extra`: the parameters were given as one block. `func` or `kernel` is what was given.
  KernelOperation(std::shared_ptr<Context> context, KernelWork work, CUfunction func,
                  CUkernel kernel, bool as_extra, KernelAttributes attributes);
  void params(CUgraphNodeParams* out) const override;
  std::function<void()> prepare(const Fence& done) const override;
  CUgraphExecUpdateResult accepts(const Operation& next) const override;

  const std::shared_ptr<Context>& context() const { return context_; }
  const KernelAttributes& attributes() const { return attributes_; }
  // CUDA_ERROR_INVALID_VALUE: not an attribute of kernel nodes, or a wrong value.
  CUresult attribute(int id, CUlaunchAttributeValue* value) const;
  CUresult with_attribute(int id, const CUlaunchAttributeValue& value, OperationPtr* out) const;
  CUresult with_attributes(const KernelAttributes& attributes, OperationPtr* out) const;

 private:
  bool has_preferred_clusters() const;

  const std::shared_ptr<Context> context_;
  const KernelWork work_;
  const CUfunction func_;
  const CUkernel kernel_;
  const bool as_extra_;
  const KernelAttributes attributes_;
  // What params() points to.
  std::vector<void*> pointers_;
  size_t bytes_ = 0;
};

}  // namespace fargpu::sim
