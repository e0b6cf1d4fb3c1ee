// As long as there is one, fchmod succeeds and changes nothing, as on file systems that keep no
// modes. In the whole process; one at a time.
#pragma once

namespace fargpu::server {

class KeepsNoModes {
 public:
  KeepsNoModes();
  ~KeepsNoModes();
};

}  // namespace fargpu::server
