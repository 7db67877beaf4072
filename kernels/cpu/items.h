// The schedule of ops on independent items: a loop.
JITNORM_INLINE void process_items(const Arguments& a, Int64 first, Int64 last) {
  for (Int64 item = first; item < last; ++item) process_item(a, item);
}
