// Compiles a file of kernels/gpu into CPU functions. HB_SOURCE is the path of the file, and HB_NAMES lists its kernels
// as X(name) X(name) ... Function run_name(launch, arguments) calls a kernel with arguments from 64-bit words.
#include "cuda_emulator.h"
#include HB_SOURCE

#include <utility>
#ifdef __SSE__
// Sets whether this thread flushes subnormal operands and results to 0, like code compiled with -ftz=true.
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
