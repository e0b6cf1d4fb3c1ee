#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

struct Calls {
  std::vector<int> order;
  CUresult inner = CUDA_SUCCESS;
  CUresult status = CUDA_ERROR_UNKNOWN;
};

struct Call {
  Calls* calls;
  int number;
};

void CUDA_CB host_function(void* data) {
  auto* call = static_cast<Call*>(data);
  call->calls->order.push_back(call->number);
}

void CUDA_CB stream_callback(CUstream, CUresult status, void* data) {
  auto* call = static_cast<Call*>(data);
  call->calls->order.push_back(call->number);
  call->calls->status = status;
}

TEST_F(ContextTest, HostFunctionsRunInStreamOrder) {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Calls calls;
  std::vector<Call> list;
  for (int i = 0; i < 20; ++i) list.push_back({&calls, i});
  for (Call& call : list) {
    if (call.number % 2 == 0) {
      OK(cuLaunchHostFunc(stream, host_function, &call));
    } else {
      OK(cuStreamAddCallback(stream, stream_callback, &call, 0));
    }
  }
  OK(cuStreamSynchronize(stream));
  ASSERT_EQ(calls.order.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(calls.order[static_cast<size_t>(i)], i);
  EXPECT_CU(CUDA_SUCCESS, calls.status);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(stream, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, nullptr, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(stream, stream_callback, nullptr, 1));
}

TEST_F(ContextTest, AHostFunctionMayNotCallTheDriver) {
  Calls calls;
  OK(cuLaunchHostFunc(
      nullptr, [](void* data) { static_cast<Calls*>(data)->inner = cuCtxSynchronize(); }, &calls));
  OK(cuStreamSynchronize(nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_PERMITTED, calls.inner);
}

TEST_F(ContextTest, AfterAFaultOnlyCallbacksWithStatusRun) {
  Calls calls;
  Call first{&calls, 1}, second{&calls, 2};
  PinnedWords gate(1);
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUfunction trap = function("trap");
  OK(cuStreamWaitValue32(stream, gate.device(), 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(launch(trap, 1, {}, stream));
  OK(cuLaunchHostFunc(stream, host_function, &first));
  OK(cuStreamAddCallback(stream, stream_callback, &second, 0));
  gate.store(0, 1);
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
  EXPECT_EQ(calls.order, std::vector<int>{2});
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, calls.status);
}

}  // namespace
}  // namespace fargpu::sim_test
