@0xd6b1e7c2f05a3948;
# What the daemon and its workers say to each other, over one pair of sockets of which the worker
# inherits an end (SOCK_SEQPACKET: a message is whole or not there). A message is the frame header of
# docs/wire-format.md and one Cap'n Proto segment, at most 64 KiB in all, without bulk bytes; the
# header's opcode is the kind of the message, fixed for ever:
#
#    1 start      daemon to worker, its first; body Start; no reply: the worker serves the session
#    2 probe      daemon to worker, its first; body Probe; reply: Inventory, and the worker ends
#    3 started    worker to daemon, its first; body Started
#    4 report     daemon to worker; no body; reply: Report
#    5 stop       daemon to worker; no body; reply: Report, once the client submits nothing more. The
#                 daemon has closed SessionOrders.gate before. Only daemons of older releases send it
#    6 resume     daemon to worker; no body; reply: Report, once the client submits again. The daemon
#                 has opened SessionOrders.gate before
#    7 drain      daemon to worker; body Drain; reply: Report, once nothing of the session works any
#                 more or the time is over: Report.idle tells which. With a closed gate it says that
#                 what was submitted has ended
#    8 lastWords  worker to daemon, its last; body LastWords
#    9 manage     daemon to worker, its first; body Start; no reply: the worker serves a management
#                 session
#   10 connectPeer  worker to daemon; body Peer; reply without body: result 0 and, attached, a
#                 socket to the worker of that session; result 2 when it is no other session of
#                 the job
#   11 peerConnected  daemon to worker; body Peer; no reply. Attached is a socket to the worker of
#                 that session of the same job, which has asked for it
#   12 prepare    daemon to worker, its first; body Prepare: the worker is started ahead. It opens the
#                 driver; reply: Prepared; it then waits for start, without a limit. To that start
#                 are attached the descriptors that another worker inherits: the client's connection,
#                 statistics, the job's memory, orders and, where the session may have further
#                 connections, the socket for them
#   13 settled    worker to daemon; no body; once: the session has a context
#   14 client     daemon to worker; no body; reply: Report, at once, of which only calls, stopped and
#                 clientGone are known
#   15 awaitEnded  worker to daemon; no body; reply without body, when no worker is left on the GPUs of
#                 the session whose client had ended when this was asked, or the daemon has waited
#                 long enough for them
#   16 findImage  worker to daemon; body ImageName; reply without body: result 0 and, attached, the
#                 image for reading, verified, which stays as it is while the session lasts; result
#                 2: the session's tenant has none of that hash
#   17 beginImage  worker to daemon; body ImageUpload; its sequence is the upload's number, which is
#                 free. Reply without body: result 0 and, attached, memory of that size for writing;
#                 result 2: the tenant has no room. It is charged until the upload ends
#   18 keepImage  worker to daemon; body ImageName; of the upload with that sequence, which is whole
#                 and mapped for writing nowhere. Reply without body: result 0: the upload has ended,
#                 and findImage finds the image; result 2: it is not kept, and the upload goes on
#   19 endImage   worker to daemon, and daemon to worker: no body, no reply; the upload with that
#                 sequence has ended: the worker has no use for it, or the daemon wants its room for
#                 other sessions of the tenant
#
# Daemon and worker may be of different releases, as while a host is being updated:
#   - Fields are added at the end, and one that the sender does not know reads as 0 or empty.
#   - A kind never gets another meaning. A worker answers a kind that it does not know with a reply
#     without body, result 1. A daemon ignores a few such messages; a worker sends no kind that came
#     after the version of Start.
#   - `version` of Start, Prepare, Probe and Started is the sender's. Each end takes every version from the
#     oldest on that it knows, also those that are newer than its own.
#
# The daemon believes nothing that a worker says beyond its own session: what breaks these rules ends
# that worker. No message holds a token or the key of a job.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema::worker");

struct Priorities { least @0 :Int32; greatest @1 :Int32; }

struct FrameLimits { maxBodyBytes @0 :UInt32; maxBulkBytes @1 :UInt64; }

struct Start {
  version @0 :UInt16;
  release @1 :Text;               # "0.1.0"
  session @2 :UInt64;
  job @3 :UInt64;
  jobSlot @4 :UInt32;             # of the session in the job's memory page
  jobSlots @5 :UInt32;            # how many that page has
  daemonPid @6 :Int32;            # for workers of older releases, which end with it
  driver @7 :Text;                # path
  memoryBytes @8 :UInt64;         # per GPU, for the whole job; 0: no limit
  imageFolder @9 :Text;           # for workers of older releases, which share one
  imageCacheBytes @10 :UInt64;    # the largest image
  limits @11 :FrameLimits;        # what this server accepts
  clientLimits @12 :FrameLimits;  # what the client accepts
  helloSequence @13 :UInt32;
  priorities @14 :List(Priorities); # of streams, per GPU of the session
  client @15 :Text;               # for the log
  transports @16 :List(Text);     # that the client wishes for, best first
  allowed @17 :List(Text);        # by the configuration
  sameHost @18 :Bool;             # as the client
  encryptedPeer @19 :Text;        # not empty: the connection is the plain end of TLS with it
  connections @20 :UInt16;        # that the session may have
  openFiles @21 :UInt32;          # limits of the worker on its host: worker_limits.h
  oomScore @22 :UInt32;
  coreDumps @23 :Bool;
  clientControl @24 :UInt64;      # opcodes of session control that the client knows, a bit each
  daemonId @25 :UInt64;           # for the Welcome
  # of a management session:
  units @26 :List(Text);          # the job's by UUID, in its order
  clientHost @27 :UInt64;         # SlotOwner::host of the client
  # of every session:
  clientPid @28 :Int32;           # of the client, as the daemon numbers processes; 0: not known
  hostMemoryBytes @29 :UInt64;    # of the worker for the client's bytes; 0: the usual limit
  lostClient @30 :UInt32;         # ms of silence of the client's host; 0: the system's time
  maxPtxBytes @31 :UInt64;        # of an image that is compiled; 0: no limit
}

# What of a Start is known before there is a session.
struct Prepare {
  version @0 :UInt16;
  release @1 :Text;
  daemonPid @2 :Int32;            # as in Start
  driver @3 :Text;
  openFiles @4 :UInt32;
  oomScore @5 :UInt32;
  coreDumps @6 :Bool;
}

struct Prepared { error @0 :Text; } # not empty: the driver could not be opened

struct Probe {
  version @0 :UInt16;
  driver @1 :Text;                # "auto", "sim" or a path
  contexts @2 :Bool;              # say what one takes of each GPU's memory
}

struct Started {
  version @0 :UInt16;
  release @1 :Text;
}

struct Inventory {
  struct Unit {
    uuid @0 :Text;
    name @1 :Text;
    totalBytes @2 :UInt64;
    priorities @3 :Priorities;
    contextBytes @4 :UInt64;      # that a context takes by itself; 0: not known
  }
  error @0 :Text;                 # not empty: there is no more
  driver @1 :Text;                # path
  driverVersion @2 :Int32;        # cuDriverGetVersion: 13000
  units @3 :List(Unit);
}

struct Drain { milliseconds @0 :UInt32; }

# What a session holds and does.
struct Report {
  calls @0 :UInt64;               # frames executed
  memoryBytes @1 :List(UInt64);   # per GPU of the session
  contexts @2 :UInt32;
  streams @3 :UInt32;             # that the client has made
  stopped @4 :Bool;               # the gate is not open
  idle @5 :Bool;                  # nothing works, on the GPU or beside it
  waits @6 :UInt32;               # replies and copies that wait for the GPU
  helperCalls @7 :UInt32;         # driver calls under way beside the executor
  hostFunctions @8 :UInt32;       # of the client, in streams
  # The worker's executor has not answered for a while, as when it sits in the driver: in `call`, an
  # opcode. Of what stands above only calls and stopped are known then.
  stuck @9 :Bool;
  call @10 :UInt16;
  clientGone @11 :Bool;           # reply to client: its process or its connection has ended
  # Likewise: such an end is seen in the moment in which the process can be waited for. Of a
  # connection over a network it may be seen later.
  clientSeen @12 :Bool;
}

struct LastWords {
  reason @0 :Text;
  limit @1 :Text;                 # of the configuration, which has ended the session; empty: none
}

# Only to and from workers whose Start, or Started, is of version 2 or later.
struct Peer { session @0 :UInt64; }

# Likewise of version 5.
struct ImageName { hash @0 :Data; } # SHA-256
struct ImageUpload { bytes @0 :UInt64; }
