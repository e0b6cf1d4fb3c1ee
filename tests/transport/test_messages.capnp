@0xd7a1c05b38e4f962;
# Messages of the channel tests: one number, or a blob.
using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::test");

struct Number { value @0 :UInt64; }
struct Order { kind @0 :UInt32; value @1 :UInt64; label @2 :Text; }
struct Nothing {}
struct Pair { value @0 :UInt32; first @1 :Data; second @2 :Data; }
struct Blob { data @0 :Data; }
struct Tree { children @0 :List(Tree); label @1 :Text; }
