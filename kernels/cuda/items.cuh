// The schedule of ops on independent items: a thread each.
JITNORM_INLINE void process_items(const Arguments& a) {
#if JITNORM_PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const Int64 item = (Int64)blockIdx.x * kThreads + threadIdx.x;
  if (item < a.items) process_item(a, item);
}
