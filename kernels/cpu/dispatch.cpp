// Selects the builds that this processor supports.
#include <string.h>

#include "../hb_kernels.h"

extern "C" const hb_kernels hb_kernels_generic;
#if defined(__x86_64__) && !defined(HB_GENERIC_ONLY)
extern "C" const hb_kernels hb_kernels_sse2, hb_kernels_avx2, hb_kernels_avx512;
#endif

namespace {
// A build requires its cpuid flags, and that the operating system saves the registers.
const hb_kernels *runnable(int k) {
#if defined(__x86_64__) && !defined(HB_GENERIC_ONLY)
  __builtin_cpu_init();
  switch (k) {
    case 0:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                 ? &hb_kernels_avx512
                 : nullptr;
    case 1: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") ? &hb_kernels_avx2 : nullptr;
    case 2: return &hb_kernels_sse2;
  }
#endif
  return k == 3 ? &hb_kernels_generic : nullptr;
}
}  // namespace

extern "C" __attribute__((visibility("default"))) const hb_kernels *hb_kernels_for(const char *name) {
  for (int k = 0; k < 4; k++) {
    const hb_kernels *found = runnable(k);
    if (found && (!name || !strcmp(name, found->name))) return found;
  }
  return nullptr;
}
