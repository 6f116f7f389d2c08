// A file of kernels/gpu as functions of the CPU: HB_SOURCE is its path, HB_NAMES its kernels as X(name) X(name) ...
// run_name(launch, arguments) gives a kernel its arguments out of words of 64 bits.
#include "cuda_emulator.h"
#include HB_SOURCE

#include <utility>
#ifdef __SSE__
// Whether this thread takes subnormal operands and results for 0, as code does that was compiled with -ftz=true.
extern "C" void flush_subnormals(int flush) {
  __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x8040u) | (flush ? 0x8040u : 0u));
}
#endif

typedef unsigned long long word;
template <class... A, size_t... I>
static void call(void (*kernel)(A...), const word *a, std::index_sequence<I...>) {
  kernel((A)a[I]...);
}
template <class... A> static void call(void (*kernel)(A...), const word *a) {
  call(kernel, a, std::index_sequence_for<A...>{});
}
#define X(name) \
  extern "C" void run_##name(const emulated_launch *launch, const word *a) { \
    emulate(launch, HB_THREADS, [=] { call(name, a); }); \
  }
HB_NAMES
extern "C" word waits() { return emulator::waits; }
