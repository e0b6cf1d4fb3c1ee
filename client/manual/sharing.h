// What halves of calls need for objects that several processes have. Any thread.
#pragma once

#include <functional>

#include "client/manual/common.h"

namespace fargpu::client {

// Runs import(session, context) for the session whose server gave the ticket out: the current one,
// or else another one. CUDA_ERROR_NOT_PERMITTED, which is said: none did.
CUresult at_its_server(const char* name,
                       const std::function<CUresult(Session&, uint16_t context)>& import);

// The end of a call with `event`: when other processes have the event, the worker has executed the
// call before it returns, because they may be told.
CUresult flush_interprocess(Session& session, CUevent event, CUresult result);

}  // namespace fargpu::client
