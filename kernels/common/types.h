// Types by width. NVRTC has no <cstdint>, and a source that includes nothing is its own complete cache key.
#pragma once

typedef unsigned char UInt8;
typedef unsigned short UInt16;
typedef unsigned int UInt32;
typedef unsigned long long UInt64;
typedef int Int32;
typedef long long Int64;

struct BFloat16 {
  UInt16 bits;
};
struct Float16 {
  UInt16 bits;
};
struct Float8E4M3 {
  UInt8 bits;
};

constexpr float kMaxFloat = 0x1.fffffep127f;
