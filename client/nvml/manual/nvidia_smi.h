// The table of functions that NVIDIA's nvidia-smi asks for before anything else. It is not
// published: its behaviour was derived from nvidia-smi of R535, R550, R555 and R580. nvidia-smi
// does not start without the table, and goes on when most of its functions are refused.
#pragma once

namespace fargpu::nvml {

// `id`: 16 bytes.
bool is_nvidia_smi_table(const void* id);
// Its size in bytes, then functions; lives for ever.
const void* nvidia_smi_table();

}  // namespace fargpu::nvml
