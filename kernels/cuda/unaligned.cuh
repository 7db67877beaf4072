// Words at any address, loaded and stored in aligned accesses of 16 bytes and shifted in between.
#pragma once

#include "chunk.cuh"

// How far an address is behind one that is aligned to 16 bytes.
JITNORM_INLINE int bytes_past_aligned(const void* address) { return (int)(reinterpret_cast<UInt64>(address) % 16); }

#ifdef JITNORM_UNALIGNED
template <int kDropped, int kWords>
JITNORM_INLINE void drop_words_if(bool is_dropped, UInt32 (&words)[kWords]) {
  JITNORM_UNROLL
  for (int i = 0; i + kDropped < kWords; ++i) words[i] = is_dropped ? words[i + kDropped] : words[i];
}

// Loads on a condition. In assembly, because the compiler would turn it into a branch, and shift one chunk before it
// requests the next.
JITNORM_INLINE void load_if(bool condition, const void* from, uint4& to) {
  asm volatile(
      "{\n.reg .pred is_wanted;\nsetp.ne.s32 is_wanted, %5, 0;\n"
      "@is_wanted ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
      : "l"(from), "r"((int)condition)
      : "memory");
}

JITNORM_INLINE void load_if(bool condition, const void* from, uint2& to) {
  asm volatile(
      "{\n.reg .pred is_wanted;\nsetp.ne.s32 is_wanted, %3, 0;\n"
      "@is_wanted ld.global.v2.b32 {%0, %1}, [%2];\n}"
      : "+r"(to.x), "+r"(to.y)
      : "l"(from), "r"((int)condition)
      : "memory");
}

template <int kBytes>
JITNORM_INLINE void load_if(bool condition, const void* from, UInt32& to) {
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4);
#define JITNORM_LOAD_IF(type)                                                                                        \
  asm volatile("{\n.reg .pred is_wanted;\nsetp.ne.s32 is_wanted, %2, 0;\n@is_wanted ld.global." type " %0, [%1];\n}" \
               : "+r"(to)                                                                                            \
               : "l"(from), "r"((int)condition)                                                                      \
               : "memory")
  if constexpr (kBytes == 4) JITNORM_LOAD_IF("b32");
  if constexpr (kBytes == 2) JITNORM_LOAD_IF("u16");
  if constexpr (kBytes == 1) JITNORM_LOAD_IF("u8");
#undef JITNORM_LOAD_IF
}

// Words that begin `past` bytes behind the first of others.
template <int kAccessBytes, int kWords, int kLoaded>
JITNORM_INLINE void shift_words(UInt32 (&loaded)[kLoaded], int past, UInt32 (&words)[kWords]) {
  drop_words_if<2>(past & 8, loaded);
  drop_words_if<1>(past & 4, loaded);
  JITNORM_UNROLL
  for (int i = 0; i < kWords; ++i) {
    words[i] = kAccessBytes < 4 ? __funnelshift_r(loaded[i], loaded[i + 1], past % 4 * 8) : loaded[i];
  }
}

// The bytes of an aligned 16 that precede an address within it; zeros for the others. They consist of some of 8, 4, 2
// and 1 bytes. The rest of these are loaded from 16 bytes before and dropped, so that one condition serves all: a
// thread has only seven predicates.
template <int kAccessBytes>
JITNORM_INLINE void load_rest(bool condition, const void* end, UInt32 (&words)[4]) {
  const int count = bytes_past_aligned(end);
  const UInt8* rest = static_cast<const UInt8*>(end) - count;
  uint2 eight = {};
  UInt32 four = 0, two = 0, one = 0;
  load_if(condition, rest - (count & 8 ? 0 : 16), eight);
  if constexpr (kAccessBytes <= 4) load_if<4>(condition, rest + (count & 8) - (count & 4 ? 0 : 16), four);
  if constexpr (kAccessBytes <= 2) load_if<2>(condition, rest + (count & 12) - (count & 2 ? 0 : 16), two);
  if constexpr (kAccessBytes == 1) load_if<1>(condition, rest + (count & 14) - (count & 1 ? 0 : 16), one);
  two = (count & 2 ? two : 0) | (count & 1 ? one << (count & 2) * 8 : 0);
  const UInt32 first = count & 4 ? four : two, second = count & 4 ? two : 0;
  words[0] = count & 8 ? eight.x : first;
  words[1] = count & 8 ? eight.y : second;
  words[2] = count & 8 ? first : 0;
  words[3] = count & 8 ? second : 0;
}

// Loads words from an address that need not be aligned, `left` bytes before the end of a row of more than 16, in
// aligned accesses of 16 bytes. Nothing past the row is read, though bytes before it may be; words past it are zero.
// Unless rows may end anywhere, all or none of the words are there.
template <int kAccessBytes, bool kEndsAnywhere, int kWords>
JITNORM_INLINE void load_unaligned(UInt32 (&words)[kWords], const UInt8* end_of_row, int left) {
  constexpr int kAccesses = kWords / 4, kBytes = 16 * kAccesses;
  const UInt8* from = end_of_row - left;
  const int past = bytes_past_aligned(from), end = past + left;
  const bool is_at_end = kEndsAnywhere ? 0 < left && left < 2 * kBytes : left == kBytes;
  UInt32 loaded[kWords + 4];
  JITNORM_UNROLL
  for (int i = 0; i <= kAccesses; ++i) {
    const bool is_there = kEndsAnywhere ? 16 * i + 16 <= end : left > (i < kAccesses ? 0 : kBytes);
    uint4 access = {};
    load_if(is_there && (i < kAccesses || past != 0), from - past + 16 * i, access);
    take_access(access, loaded, 4 * i);
  }
  UInt32 rest[4];
  load_rest<kAccessBytes>(is_at_end, end_of_row, rest);
  JITNORM_UNROLL
  for (int i = kEndsAnywhere ? 0 : kWords; i < kWords + 4; ++i) {
    const bool is_cut = !kEndsAnywhere || (is_at_end && end / 16 == i / 4);
    loaded[i] |= is_cut ? rest[i % 4] : 0;
  }
  shift_words<kAccessBytes>(loaded, past, words);
}

// Stores the bytes of an aligned 16 from one to another.
JITNORM_INLINE void store_bytes_between(UInt8* aligned, const UInt32 (&words)[4], int first, int end) {
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (first <= 4 * i && 4 * i + 4 <= end) {
      reinterpret_cast<UInt32*>(aligned)[i] = words[i];
    } else if (first < 4 * i + 4 && 4 * i < end) {
      JITNORM_UNROLL
      for (int k = 0; k < 4; ++k) {
        if (first <= 4 * i + k && 4 * i + k < end) aligned[4 * i + k] = (UInt8)(words[i] >> (8 * k));
      }
    }
  }
}

// Stores the words of each lane that has some to any address, in aligned accesses of 16 bytes. The first may begin with
// bytes of the lane before, if they precede a lane's in memory; accesses that no lane has as a whole are stored in
// pieces. Every lane of the warp takes part.
template <int kWords>
JITNORM_INLINE void store_unaligned(UInt8* to, const UInt32 (&words)[kWords], bool is_there) {
  const int lane = threadIdx.x % 32, past = bytes_past_aligned(to);
  const UInt32 at = (UInt32) reinterpret_cast<UInt64>(to), there = __ballot_sync(kFullWarp, is_there);
  const UInt32 before = __shfl_up_sync(kFullWarp, at, 1);
  const bool follows = is_there && lane > 0 && (there >> (lane - 1) & 1) && before + 4 * kWords == at;
  const bool precedes = __ballot_sync(kFullWarp, follows) >> lane >> 1 & 1;
  UInt32 joined[kWords + 8] = {};
  JITNORM_UNROLL
  for (int i = 0; i < 4; ++i) joined[i] = __shfl_up_sync(kFullWarp, words[kWords - 4 + i], 1);
  JITNORM_UNROLL
  for (int i = 0; i < kWords; ++i) joined[4 + i] = words[i];
  const int dropped = 16 - past;
  drop_words_if<4>(dropped & 16, joined);
  UInt32 shifted[kWords + 4];
  shift_words<1>(joined, dropped % 16, shifted);
  if (!is_there) return;
  UInt8* aligned = to - past;
  JITNORM_UNROLL
  for (int i = 0; i < kWords + 4; i += 4) {
    const UInt32 access[4] = {shifted[i], shifted[i + 1], shifted[i + 2], shifted[i + 3]};
    const bool is_whole = i == 0 ? follows || past == 0 : i < kWords;
    if (is_whole) {
      reinterpret_cast<uint4*>(aligned)[i / 4] = {access[0], access[1], access[2], access[3]};
    } else if (i == 0) {
      store_bytes_between(aligned, access, past, 16);
    } else if (!precedes) {
      store_bytes_between(aligned + 4 * i, access, 0, past);
    }
  }
}
#endif
