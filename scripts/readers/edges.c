// Called at each branch of code that was compiled with -fsanitize-coverage=trace-pc: notes pairs of branches.
#include <stdint.h>

uint8_t jitnorm_edges[1 << 16];
static __thread uintptr_t previous;

void __sanitizer_cov_trace_pc(void) {
  const uintptr_t here = (uintptr_t)__builtin_return_address(0);
  jitnorm_edges[(here ^ previous) & 0xffff] = 1;
  previous = here >> 1;
}
