// A copy of bytes on the host.
template <int kBytes>
JITNORM_INLINE void copy_bytes(void* to, const void* from) {
  __builtin_memcpy(to, from, kBytes);
}
