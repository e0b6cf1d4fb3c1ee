// OwnLayouts: what the program's own images say of their kernels' parameters. A server says it,
// too; by its word alone the client would read memory of the program.
//
// Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "client/image/send.h"
#include "common/base/status.h"
#include "common/fatbin/kernel_layouts.h"

namespace fargpu::client {

class OwnLayouts {
 public:
  // Copies the image, whose memory is the program's. It is read at the first question.
  void add(ImageBytes image);
  // There are kernels besides, of which nothing is known.
  void add_unknown();
  // What was linked from these images, by a server: kernels that are in them are as they say, and
  // others only where they may have more. kProtocol names the first kernel that is not so;
  // otherwise the image is added.
  Status add_linked(ImageBytes image);
  // Whether the kernel may have this layout: by it a launch reads no more than the parameters that
  // the images say it has. Their offsets are the driver's: ptxas aligns large ones otherwise than
  // PTX says. Where the images say nothing of the kernel but may have more, the answer is yes;
  // where they have no more, it is yes for no parameters alone. kProtocol with the difference.
  Status check(const std::string& kernel, const ParameterLayout& layout);
  // The only block that a launch of the kernel may have; 0: any, or the images differ.
  std::array<unsigned, 3> required_block(const std::string& kernel);

 private:
  Status check_locked(const std::string& kernel, const ParameterLayout& layout);
  void read_added();

  std::mutex mutex_;
  std::vector<std::vector<std::byte>> added_;  // not yet read
  KernelLayouts layouts_;
};

}  // namespace fargpu::client
