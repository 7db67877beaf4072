// A copy of bytes on the GPU: one instruction, if the addresses are known to be aligned to the size.
template <int kBytes>
JITNORM_INLINE void copy_bytes(void* to, const void* from) {
  memcpy(to, from, kBytes);
}
