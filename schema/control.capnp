@0xa3c1f6d0b7e94c11;
# Session control: everything on the wire that is not a CUDA call. Opcodes 1..63 of the frame
# header, fixed for ever:
#
#    1 hello         client to daemon, first frame; body Hello;
#                    reply: Welcome (from the worker) or Refusal (from the daemon)
#    2 ping          client to worker; no body; reply without body
#    3 bye           client to worker, last frame; no body;
#                    no reply: the worker frees everything and exits
#    4 output        worker to client, notice; bulk: bytes that device code printed, for the
#                    client's stdout, in order
#    5 hostCall      worker to client, notice; body HostCall;
#                    the client runs the function, then sends hostCallDone
#    6 hostCallDone  client to worker, async; body HostCallDone
#    7 status        operator to daemon, first frame; body Hello (token);
#                    reply: Status; then the daemon closes
#    8 upgrade       client to worker, after the Welcome; body Upgrade;
#                    reply: UpgradeReply; another transport takes over
#    9 join          client to daemon, first frame of a further connection of a session; body Join;
#                    reply: without body, or Refusal
#   10 copied        worker to client, notice; body Copied:
#                    a copy that the client gave a ticket is done with the client's memory
#   11 alive         worker to client, notice; no body; the header's sequence is the opcode of the
#                    call that the worker executes (0: none):
#                    a call takes long in the driver; the worker lives
#   12 errorOutput   worker to client, notice; bulk: bytes that the driver wrote to its stderr (a
#                    failed assert of device code), for the client's stderr, in order
#   13 delivery      worker to client, notice; body Delivery, bulk: bytes of a copy to the host that
#                    follows its stream
#   14 fetch         worker to client, notice; body Fetch: the stream has come to a copy of the
#                    host's bytes that follows it
#   16 inspect       client to worker; no body; reply: Inspection
#   17 queueReached  worker to client, notice; body QueueReached:
#                    what came before an fgQueueMark in its stream is done
#   18 openJob       client to daemon, first frame; body OpenJob; reply: JobOpened or Refusal; the
#                    connection stays open and silent: the job is held until it ends
#   19 manage        client to daemon, first frame of a management session; body Hello;
#                    reply: Welcome with `management`, or Refusal. Its calls are those of
#                    api/nvml_registry.yml, each with a body NvmlCall
#   20 landed        worker to client, notice; body Landed: all bytes of a copy to the device that
#                    follows its stream have come by the bulk connection. Who knows it knows bulk
#                    connections
#   21 deliveryBeside worker to client, notice; no body; the header's sequence is the number, from 1
#                    on, of a delivery that goes by the bulk connection, as a frame with the same
#                    sequence: this is its place among what is sent here
#   22 sessionEnd    client to daemon, first frame; body Hello (token, endedSession):
#                    reply: SessionEnd, or Refusal; then the daemon closes
#   23 passed        worker to client, notice; no body; the header's sequence is the low half of the
#                    id of a copy that may be amended: its stream has passed it, or never will
#
# An end sends the other one only what that one says it knows (Hello.knows, Welcome.knows). A notice
# that the client does not know is not sent; those that answer a call of the client's (hostCall,
# copied, delivery, fetch, queueReached, landed) it knows if it knows the call. Fields are only added, and an
# ordinal keeps its type and meaning; a message that must change otherwise is a new opcode.
#
# Every text is UTF-8, at most 4 KiB; lists are limited by the frame limits.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct Hello {
  # wire::kProtocolVersion; another one is refused with Refusal.version. This field, clientVersion
  # and Refusal are the same in every protocol version.
  protocolVersion @0 :UInt16;
  registryHash @1 :UInt64;        # 0; a server before 0.2.0 compares it with its own and refuses
  clientVersion @2 :Text;         # "0.2.0"
  cudaVersion @3 :Int32;          # the client's header version, 13000
  token @4 :Text;                 # from the token file; empty when there is none
  gpus @5 :UInt32;                # how many GPUs; 0: the server's default (1)
  memoryBytes @6 :UInt64;         # per GPU; 0: the server's default
  # wanted GPUs by UUID ("GPU-...") or index; empty: the server chooses
  devices @7 :List(Text);
  clientName @8 :Text;            # host:pid program, for ps and logs
  maxBodyBytes @9 :UInt32;        # what the client accepts in one frame
  maxBulkBytes @10 :UInt64;
  # what the client would rather use than this socket, best first ("shm", "rdma"); empty: it stays
  # here
  transports @11 :List(Text);
  hostId @12 :Text;               # the same text on both ends: one host
  # how many connections the client may want if the session stays on TCP; 0 or 1: this one
  connections @13 :UInt16;
  # The job that the session belongs to: id and key (16 bytes) of JobOpened. Without a key the
  # session is a job by itself. A key without an id is the client's own: the first session that
  # shows it makes the job, the others join it.
  jobId @14 :UInt64;
  jobKey @15 :Data;
  # Which opcodes the client knows (common/wire/opcode_set.h), session control and calls. Empty: it
  # is older than 0.2.0, and refused with Refusal.version.
  knows @16 :Data;
  # Which process it is, and which numbers of processes it knows: those of one pid namespace of one
  # host (hostId). A program sees the processes of its job that have numbers of its own kind.
  pid @17 :Int32;                 # 0: not said
  pidNamespace @18 :UInt64;       # 0: not said
  endedSession @19 :UInt64;       # of sessionEnd: which session is asked for
}

struct SessionEnd {
  enum State {
    unknown @0;                   # the daemon has not had it, or it ended long ago
    lives @1;
    ended @2;
  }
  state @0 :State;
  why @1 :Text;                   # of ended: one line
}

struct Refusal {
  enum Reason {
    unknown @0; version @1; token @2; noCapacity @3; badRequest @4; driver @5; draining @6;
    job @7;                       # there is no such job (any more), or the key is another one
  }
  reason @0 :Reason;
  message @1 :Text;               # one line: what happened and what to do
}

struct Attribute { id @0 :Int32; value @1 :Int32; }

struct Device {
  name @0 :Text;
  uuid @1 :Data;                  # 16 bytes
  totalBytes @2 :UInt64;          # after the session's memory limit
  attributes @3 :List(Attribute); # CUdevice_attribute -> value, as the driver reports them
  luid @4 :Data;                  # 8 bytes or empty
  luidNodeMask @5 :UInt32;
  pciBusId @6 :Text;              # "0000:01:00.0"
  leastPriority @7 :Int32;        # cuCtxGetStreamPriorityRange
  greatestPriority @8 :Int32;
}

# What the client answers locally: taken once, when the worker has initialised its driver.
struct Welcome {
  sessionId @0 :UInt64;
  serverVersion @1 :Text;
  driverVersion @2 :Int32;        # cuDriverGetVersion on the server
  driverName @3 :Text;            # path of the driver, or "sim"
  devices @4 :List(Device);       # in the worker's ordinal order
  maxBodyBytes @5 :UInt32;
  maxBulkBytes @6 :UInt64;
  unavailable @7 :List(UInt16);   # API opcodes that the server's driver does not have
  upgrades @8 :List(UpgradeChoice); # one for each of Hello.transports, in its order
  # how many connections the session may have, at most Hello.connections; 0 or 1: this one
  connections @9 :UInt16;
  # 16 bytes, when there may be several: what a further connection shows in its Join
  sessionKey @10 :Data;
  knows @11 :Data;                # as in Hello: what the server has a message for
  # which life of which daemon this is, whatever address it was reached at; 0: the server is older
  # and does not say so
  daemonId @12 :UInt64;
  management @13 :Management;     # of a management session; it has nothing else but limits and names
}

# What the client of a management session answers by itself.
struct Management {
  struct Device {
    uuid @0 :Text;                # "GPU-...", as CUDA has it
    serial @1 :Text;              # empty: it has none
    domain @2 :UInt32;            # PCI
    bus @3 :UInt32;
    device @4 :UInt32;
  }
  devices @0 :List(Device);       # the job's, in its order
}

# The arguments of a call of NVML, or the outputs of its answer, one behind the other
# (schema/support/packed.h).
struct NvmlCall {
  arguments @0 :Data;
  # Of an answer: nvmlReturn_t. One that is neither NVML_SUCCESS nor NVML_ERROR_INSUFFICIENT_SIZE has
  # no outputs, and stands in the header of a frame without body.
  result @1 :Int32;
}

# The first frame of a further connection. The daemon hands the connection to the session's worker.
struct Join {
  protocolVersion @0 :UInt16;     # wire::kProtocolVersion
  sessionId @1 :UInt64;
  sessionKey @2 :Data;            # of the Welcome
  index @3 :UInt16;               # 1 for the first further connection; each once
}

# Opens a job: GPUs and memory are reserved for it, and its sessions use them. Whoever sent it holds
# the job by keeping the connection open.
struct OpenJob {
  protocolVersion @0 :UInt16;     # as in Hello; so are the others
  clientVersion @1 :Text;
  token @2 :Text;
  gpus @3 :UInt32;
  memoryBytes @4 :UInt64;         # per GPU, for all sessions of the job together
  devices @5 :List(Text);
  clientName @6 :Text;
  knows @7 :Data;
}

struct JobOpened {
  jobId @0 :UInt64;
  jobKey @1 :Data;                # 16 bytes, what a session shows in its hello; opens nothing else
  gpus @2 :List(Text);            # UUIDs, in the order in which every session sees them
  serverVersion @3 :Text;
  knows @4 :Data;                 # as in Welcome
  daemonId @5 :UInt64;            # as in Welcome
}

struct UpgradeChoice {
  transport @0 :Text;
  why @1 :Text;                   # why the server cannot offer it; empty: it can
}

# When Welcome.upgrades is not empty, or Welcome.connections more than 1, the client leads a
# conversation on the socket: prepare, then done or failed, as often as it wants to try; after a
# done that the worker agreed to, the new transport takes over; stay ends it with the socket as the
# transport.
struct Upgrade {
  enum Step { prepare @0; done @1; failed @2; stay @3; }
  step @0 :Step;
  transport @1 :Text;
  reason @2 :Text;                # of failed and stay, for the server's log
  # of stay: how many there are with this one; the further ones have joined. 0 or 1: this one
  connections @3 :UInt16;
  # of stay, if the server knows landed: so many of them, the last ones, are the bulk connection
  bulk @4 :UInt16;
}

struct UpgradeReply {
  ok @0 :Bool;
  reason @1 :Text;                # when not ok
  # Of prepare: where the client finds the worker, and what proves that it is this client.
  # shm: an abstract unix socket; empty: the session's own socket is one
  unixName @2 :Text;
  port @3 :UInt16;                # rdma
  cookie @4 :Data;                # 16 bytes
}

# id: client-made, given in fgHostCall; status: the stream's CUresult, for cuStreamAddCallback;
# cancelled: the function will never run, and the worker waits for no hostCallDone
struct HostCall { id @0 :UInt64; status @1 :Int32; cancelled @2 :Bool; }
struct HostCallDone { id @0 :UInt64; }

struct Copied {
  ticket @0 :UInt64;              # the number in the Completion of its fgCopy
  result @1 :Int32;               # CUresult
  outputs @2 :UInt32;             # how many output notices were sent before
}

# Bytes of a copy to the host that follows its stream (Completion::Kind::kFollow), packed rows, in
# order.
struct Delivery {
  copy @0 :UInt64;                # the client's id
  offset @1 :UInt64;              # of the bulk in the packed bytes
  # CUresult; when it is an error there is no copy any more, and no bulk
  result @2 :Int32;
  # Over rdma instead of the bulk: so many bytes were written to the client's memory.
  written @3 :UInt64;
}

# The client sends the bytes [offset, offset + bytes) of a copy to the device that follows its
# stream, by fgFetched. No bytes: a stream has come to an fgMeetDeliveries, which the client answers by
# fgDelivered.
struct Fetch {
  copy @0 :UInt64;
  offset @1 :UInt64;
  bytes @2 :UInt64;
  # CUresult; when it is an error there is no copy any more, which the client answers by fgFetched
  # without bytes; fgMeetDeliveries is over without an answer
  result @3 :Int32;
}

struct Landed { copy @0 :UInt64; }           # the client's id

# What the worker has not finished, for the client's watchdog.
struct Inspection {
  struct Wait {
    opcode @0 :UInt16;            # of the call that began it; 0: none
    seconds @1 :Float64;          # for how long
  }
  waits @0 :List(Wait);           # oldest first, at most 16
  hostFunctions @1 :UInt32;       # in streams
  helperCalls @2 :UInt32;         # driver calls under way beside the executor
}

struct QueueReached { ticket @0 :UInt64; }   # as in fgQueueMark

struct SessionInfo {
  id @0 :UInt64;
  client @1 :Text;                # Hello.clientName
  peer @2 :Text;                  # address
  transport @3 :Text;
  gpus @4 :List(Text);            # UUIDs
  memoryLimitBytes @5 :UInt64;    # per GPU; 0: none
  memoryUsedBytes @6 :UInt64;     # over all its GPUs
  seconds @7 :Float64;            # age
  workerPid @8 :Int32;
  calls @9 :UInt64;               # frames executed
  job @10 :UInt64;
  management @11 :Bool;
  hangs @12 :Bool;                # its worker was killed, and is still there
}

struct JobInfo {
  id @0 :UInt64;
  client @1 :Text;                # who opened it, else its first session
  peer @2 :Text;
  gpus @3 :List(Text);            # UUIDs, in the sessions' order
  memoryLimitBytes @4 :UInt64;    # per GPU, for all its sessions together; 0: none
  memoryUsedBytes @5 :List(UInt64); # per GPU
  held @6 :Bool;                  # a connection holds it
  seconds @7 :Float64;            # age
  endsInSeconds @8 :Float64;      # it has no session and nobody holds it; else negative
}

struct GpuInfo {
  uuid @0 :Text;
  name @1 :Text;
  totalBytes @2 :UInt64;
  reservedBytes @3 :UInt64;
  sessions @4 :UInt32;
  jobs @5 :UInt32;
  outOfService @6 :Text;          # why; empty: it is in service
}

struct Status {
  serverVersion @0 :Text;
  driverName @1 :Text;
  driverVersion @2 :Int32;
  gpus @3 :List(GpuInfo);
  sessions @4 :List(SessionInfo);
  uptimeSeconds @5 :Float64;
  jobs @6 :List(JobInfo);
  knows @7 :Data;                 # as in Welcome
}
