// Emulates CUDA device code as plain C++. Each CUDA thread is a fiber that runs until it must wait for other threads.
// Shuffles, ballots and barriers are therefore exact. With one worker, blocks run sequentially and in order, and
// execution is deterministic. With several workers, blocks run concurrently on CPU threads, as required by blocks that
// exchange values. The emulation reproduces differences between a GPU and the CPU: arithmetic yields NaN 0x7fffffff,
// conversions to integers saturate, and vectors must be aligned (build with -fsanitize=alignment). It does not model
// memory order or speed.
//
// Include this header before the device code. emulate(launch, threads, kernel) runs a kernel.
#pragma once
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <type_traits>

namespace emulator {
constexpr unsigned MOST = 1024, STACK = 1 << 16;

// The built-in setjmp and longjmp save only three words. Those of the C library would dominate the switch time.
typedef void *resume_point[5];

struct fiber {
  ucontext_t start;
  resume_point at;
  const unsigned *awaits;  // number of the meeting to wait for; the fiber waits while the number equals `seen`
  unsigned seen;
  bool begun, running;
};
// Values that the threads of a warp or block exchange at a meeting. The values of two meetings are stored, because a
// thread may be one meeting ahead of threads that have not read their values yet.
struct meeting {
  unsigned arrived, number;
  const void *place;
  unsigned long long values[2][32];
};
struct multiprocessor {  // runs one block at a time
  fiber fibers[MOST];
  resume_point scheduler;
  meeting warps[MOST / 32], block;
  unsigned current, steps, asleep;
  char *stacks = (char *)mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ~multiprocessor() { munmap(stacks, MOST * STACK); }
};
inline thread_local multiprocessor *mine;  // each access from a shared library costs a call
inline unsigned threads, workers, next_block;
inline unsigned long long waits;  // number of times that a thread had to wait for another block
inline void (*call)(const void *);
inline const void *kernel;

[[noreturn]] inline void fail(const char *what) {
  fprintf(stderr, "emulator: thread %u: %s\n", mine->current, what);
  abort();
}
// __builtin_longjmp must not be called from the function that called __builtin_setjmp.
[[noreturn, gnu::noinline]] inline void jump(resume_point &to) { __builtin_longjmp(to, 1); }
[[gnu::noinline]] inline void yield(multiprocessor &m) {
  if (!__builtin_setjmp(m.fibers[m.current].at)) jump(m.scheduler);
}
inline void live() {  // all blocks and launches reuse the fibers
  for (;;) {
    call(kernel);
    multiprocessor &m = *mine;
    m.fibers[m.current].running = false;
    m.steps++;
    yield(m);
  }
}
[[noreturn, gnu::noinline]] inline void enter(fiber &f, char *stack) {
  if (f.begun) jump(f.at);
  f.begun = true;
  getcontext(&f.start);
  f.start.uc_stack.ss_sp = stack;
  f.start.uc_stack.ss_size = STACK;
  makecontext(&f.start, live, 0);
  setcontext(&f.start);
  abort();
}
[[gnu::noinline]] inline void resume(multiprocessor &m, unsigned t) {
  m.current = t;
  if (!__builtin_setjmp(m.scheduler)) enter(m.fibers[t], m.stacks + t * STACK);
}
// Waits until `size` threads meet at the same place in the program, and returns their values.
inline const unsigned long long *meet(multiprocessor &at, meeting &m, unsigned size, unsigned index,
                                      unsigned long long value, const void *place) {
  if (m.arrived == 0) m.place = place;
  if (m.place != place) fail("threads that must meet are at different places");
  const unsigned number = m.number;
  m.values[number & 1][index & 31] = value;
  at.steps++;
  if (++m.arrived == size) {
    m.arrived = 0;
    m.number++;
  } else {
    fiber &own = at.fibers[at.current];
    own.awaits = &m.number;
    own.seen = number;
    yield(at);
  }
  return m.values[number & 1];
}
}  // namespace emulator

struct dim3 {
  unsigned x, y, z;
};
static thread_local dim3 blockIdx;
static dim3 blockDim, gridDim;
struct emulated_thread_index {
  struct component {
    operator unsigned() const { return emulator::mine->current; }
  } x;
};
static emulated_thread_index threadIdx;

struct emulated_launch {
  unsigned grid;
  unsigned first;      // first block to run
  unsigned backwards;  // run the threads of a block in reverse order; the result must not change without a race
  unsigned workers;    // number of concurrent blocks; 0 means 1
};
static void emulate_blocks(const emulated_launch *launch) {
  using namespace emulator;
  static thread_local multiprocessor own;
  mine = &own;
  while ((blockIdx.x = __atomic_fetch_add(&next_block, 1u, __ATOMIC_SEQ_CST)) < launch->grid) {
    for (unsigned t = 0; t < threads; t++) own.fibers[t].running = true;
    for (bool any = true; any;) {
      any = false;
      const unsigned before = own.steps;
      own.asleep = 0;
      for (unsigned k = 0; k < threads; k++) {
        const unsigned t = launch->backwards ? threads - 1 - k : k;
        fiber &f = own.fibers[t];
        if (!f.running) continue;
        any = true;
        if (f.awaits && *f.awaits == f.seen) continue;
        f.awaits = nullptr;
        resume(own, t);
      }
      if (!any || own.steps != before) continue;
      if (!own.asleep) fail("threads wait for others that never come");
      usleep(50);  // all threads wait for another block, which may need this core
    }
  }
}
static void *emulate_on_thread(void *launch) {
  emulate_blocks((const emulated_launch *)launch);
  return nullptr;
}
template <class F> void emulate(const emulated_launch *launch, unsigned size, F kernel) {
  using namespace emulator;
  emulator::kernel = &kernel;
  call = [](const void *f) { (*(const F *)f)(); };
  threads = size;
  workers = launch->workers;
  next_block = launch->first;
  gridDim = {launch->grid, 1, 1};
  blockDim = {size, 1, 1};
  if (workers < 2) return emulate_blocks(launch);
  pthread_t pool[MOST];
  const unsigned count = workers;
  if (count > MOST) fail("more workers than there is room for");
  for (unsigned w = 0; w < count; w++)
    if (pthread_create(&pool[w], nullptr, emulate_on_thread, (void *)launch)) fail("no thread for a worker");
  for (unsigned w = 0; w < count; w++) pthread_join(pool[w], nullptr);
}

// ------------------------------------------------------------------------------------------------ warps and blocks
template <class T> static const unsigned long long *emulated_warp(unsigned mask, T x, const void *at) {
  using namespace emulator;
  if (mask != 0xffffffffu) fail("only whole warps may meet");
  static_assert(sizeof(T) <= 8, "");
  unsigned long long bits = 0;
  memcpy(&bits, &x, sizeof x);
  multiprocessor &own = *mine;
  return meet(own, own.warps[own.current / 32], 32, own.current % 32, bits, at);
}
template <class T> T emulated_shuffle(unsigned mask, T x, unsigned from) {
  const unsigned long long *all = emulated_warp(mask, x, (const void *)&emulated_shuffle<T>);
  T r;
  memcpy((void *)&r, &all[from], sizeof r);
  return r;
}
static unsigned emulated_lane() { return emulator::mine->current % 32; }
template <class T> T __shfl_sync(unsigned mask, T x, int lane) { return emulated_shuffle(mask, x, (unsigned)lane & 31); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int by) {
  return emulated_shuffle(mask, x, emulated_lane() ^ ((unsigned)by & 31));
}
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by) {
  return emulated_shuffle(mask, x, emulated_lane() + by < 32 ? emulated_lane() + by : emulated_lane());
}
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by) {
  return emulated_shuffle(mask, x, emulated_lane() >= by ? emulated_lane() - by : emulated_lane());
}
template <class F> static auto emulated_fold(unsigned mask, unsigned x, F join) {
  const unsigned long long *all = emulated_warp(mask, x, (const void *)__PRETTY_FUNCTION__);
  unsigned r = (unsigned)all[0];
  for (int i = 1; i < 32; i++) r = join(r, (unsigned)all[i]);
  return r;
}
static unsigned __reduce_max_sync(unsigned mask, unsigned x) {
  return emulated_fold(mask, x, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
static unsigned __reduce_add_sync(unsigned mask, unsigned x) {
  return emulated_fold(mask, x, [](unsigned a, unsigned b) { return a + b; });
}
static unsigned __reduce_or_sync(unsigned mask, unsigned x) {
  return emulated_fold(mask, x, [](unsigned a, unsigned b) { return a | b; });
}
static unsigned __ballot_sync(unsigned mask, int yes) {
  const unsigned bit = yes ? 1u << emulated_lane() : 0u;
  return emulated_fold(mask, bit, [](unsigned a, unsigned b) { return a | b; });
}
static int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
static int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) == 0xffffffffu; }
static void __syncwarp(unsigned mask = 0xffffffffu) { emulated_warp(mask, 0, (const void *)&__syncwarp); }
static void __syncthreads() {
  using namespace emulator;
  meet(*mine, mine->block, threads, 0, 0, (const void *)&__syncthreads);
}
static void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static void __threadfence_block() {}
static void __nanosleep(unsigned) {
  using namespace emulator;
  if (workers > 1) {  // another block may be running
    __atomic_fetch_add(&waits, 1ull, __ATOMIC_RELAXED);
    mine->asleep++;
  }
  yield(*mine);
}

// converts arguments to the type in memory
template <class T> struct emulated_same { typedef T type; };
#define EMULATED_ATOMIC(name, result)                                                                      \
  template <class T> T name(T *p, typename emulated_same<T>::type x) {                                     \
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                          \
    while (!__atomic_compare_exchange_n(p, &old, (T)(result), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
    return old;                                                                                            \
  }
EMULATED_ATOMIC(atomicAdd, old + x)
EMULATED_ATOMIC(atomicOr, old | x)
EMULATED_ATOMIC(atomicAnd, old & x)
EMULATED_ATOMIC(atomicMax, old > x ? old : x)
EMULATED_ATOMIC(atomicMin, old < x ? old : x)
EMULATED_ATOMIC(atomicExch, x)
template <class T> T atomicCAS(T *p, typename emulated_same<T>::type expected, typename emulated_same<T>::type x) {
  __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

// ------------------------------------------------------------------------------------------------ words and vectors
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static unsigned long long emulated_pair(unsigned low, unsigned high) { return (unsigned long long)high << 32 | low; }
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned s) {
  return (unsigned)(emulated_pair(low, high) << (s & 31) >> 32);
}
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned s) {
  return (unsigned)(emulated_pair(low, high) >> (s & 31));
}
static unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned s) {
  return (unsigned)(emulated_pair(low, high) << (s < 32 ? s : 32) >> 32);
}
static unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned s) {
  return (unsigned)(emulated_pair(low, high) >> (s < 32 ? s : 32));
}
static unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
  return r;
}
static unsigned __byte_perm(unsigned low, unsigned high, unsigned select) {
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned k = select >> (4 * i) & 15, byte = (unsigned)(emulated_pair(low, high) >> (8 * (k & 7))) & 255;
    r |= (k & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return r;
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static int __ffs(unsigned x) { return __builtin_ffs((int)x); }

// ------------------------------------------------------------------------------------------------ float32
struct emulated_float {
  float value;
  emulated_float() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> emulated_float(T x) : value((float)x) {}
  explicit operator int() const {
    if (value != value) return 0;
    return value >= 0x1p31f ? 0x7fffffff : value < -0x1p31f ? -0x7fffffff - 1 : (int)value;
  }
  explicit operator double() const { return value; }
  static emulated_float made(float x) {
    emulated_float r;
    const unsigned nan = 0x7fffffff;
    x == x ? memcpy(&r.value, &x, 4) : memcpy(&r.value, &nan, 4);
    return r;
  }
  friend emulated_float operator+(emulated_float a, emulated_float b) { return made(a.value + b.value); }
  friend emulated_float operator-(emulated_float a, emulated_float b) { return made(a.value - b.value); }
  friend emulated_float operator*(emulated_float a, emulated_float b) { return made(a.value * b.value); }
  friend emulated_float operator/(emulated_float a, emulated_float b) { return made(a.value / b.value); }
  friend bool operator==(emulated_float a, emulated_float b) { return a.value == b.value; }
  friend bool operator<(emulated_float a, emulated_float b) { return a.value < b.value; }
  friend bool operator>(emulated_float a, emulated_float b) { return a.value > b.value; }
};
static unsigned __float_as_uint(emulated_float f) {
  unsigned u;
  memcpy(&u, &f.value, 4);
  return u;
}
static emulated_float __uint_as_float(unsigned u) {
  emulated_float f;
  memcpy(&f.value, &u, 4);
  return f;
}

static double __hiloint2double(int high, int low) {
  const unsigned long long bits = emulated_pair((unsigned)low, (unsigned)high);
  double d;
  memcpy(&d, &bits, 8);
  return d;
}
static unsigned long long emulated_bits(double d) {
  unsigned long long bits;
  memcpy(&bits, &d, 8);
  return bits;
}
static int __double2loint(double d) { return (int)(unsigned)emulated_bits(d); }
static int __double2hiint(double d) { return (int)(unsigned)(emulated_bits(d) >> 32); }

#define float emulated_float
#define __CUDACC__
#define __device__
#define __global__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local
