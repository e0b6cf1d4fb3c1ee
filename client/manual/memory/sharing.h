// What halves of calls need for objects that several processes have. Any thread.
#pragma once

#include <functional>

#include "client/manual/common.h"
#include "client/manual/memory/ticket_file.h"

namespace fargpu::client {

// Runs `share`. What other processes do with memory of this session, or this one with theirs, must
// not be told apart from a copy that has returned too early: no copy does from here on, unless
// `share` fails.
CUresult sharing(Session& session, const std::function<CUresult()>& share);

// A descriptor for the program with the ticket, for call `name`. A driver lets programs that are
// started by exec have those of pools (`inherited`), and not those of memory.
CUresult give_ticket_file(const char* name, const TicketBytes& ticket, bool inherited,
                          int* descriptor);

// A driver that is not told of a device has no memory of it: says that, for call `name`.
CUresult refuse_hidden_device(const char* name);

// Runs import(session, context) for the session whose server gave the ticket out: the current one,
// or else another one. CUDA_ERROR_NOT_PERMITTED, which is said: none did.
CUresult at_its_server(const char* name,
                       const std::function<CUresult(Session&, uint16_t context)>& import);

}  // namespace fargpu::client
