// The readings and settings of the simulated GPUs. All values are invented, equal for all GPUs, and
// independent of their work: enough for programs that print it and for tests that compare it.
#pragma once

namespace fargpu::sim::nvml {

inline constexpr const char* kDriverVersion = "580.0.0";
inline constexpr const char* kDriverBranch = "r580_00";
inline constexpr const char* kNvmlVersion = "13.580.0.0";
inline constexpr const char* kVbiosVersion = "90.00.00.00.01";
inline constexpr const char* kPartNumber = "900-00000-0000-000";
inline constexpr const char* kInforomImage = "F000.0000.00.01";
inline constexpr const char* kInforomObject = "1.0";  // each of its parts

inline constexpr unsigned kMaker = 0x10de;
inline constexpr unsigned kPciDevice = 0x5a00 << 16 | kMaker;
inline constexpr unsigned kPciSubsystem = 0x0001 << 16 | kMaker;
inline constexpr unsigned kPciGeneration = 5;
inline constexpr unsigned kPciLanes = 16;
inline constexpr unsigned kPciMegabits = 32000;  // per lane and second
inline constexpr unsigned kBar1Bytes = 256U << 20;
inline constexpr unsigned kCoresPerMultiprocessor = 128;

inline constexpr unsigned kCelsius = 34;
inline constexpr unsigned kSlowdownCelsius = 87;
inline constexpr unsigned kShutdownCelsius = 92;

inline constexpr unsigned kMilliwatts = 76000;
inline constexpr unsigned kMinMilliwatts = 200000;
inline constexpr unsigned kMaxMilliwatts = 700000;  // also the default and the present value

inline constexpr unsigned kVideoMegahertz = 800;  // the other clocks are the driver's
inline constexpr unsigned kSamplePeriodMicroseconds = 166666;
inline constexpr unsigned kAccountingEntries = 4000;

}  // namespace fargpu::sim::nvml
