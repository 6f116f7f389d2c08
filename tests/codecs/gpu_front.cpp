// kernels/gpu.cu as plain C++: a thread for each CUDA thread, a barrier for each synchronisation. It shows that the
// staging of bits is right for every rate and length. It shows nothing of a GPU's memory model or speed.
#include <math.h>
#include <pthread.h>

#include <thread>
#include <vector>

struct float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x;
};
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static thread_local dim3 threadIdx;
static dim3 blockIdx, blockDim, gridDim;
static pthread_barrier_t whole_block, one_warp[8];
static void __syncthreads() { pthread_barrier_wait(&whole_block); }
static void __syncwarp() { pthread_barrier_wait(&one_warp[threadIdx.x / 32]); }
static void atomicOr(unsigned *p, unsigned bits) { __atomic_fetch_or(p, bits, __ATOMIC_RELAXED); }
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned s) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (s & 31)) >> 32);
}
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned s) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (s & 31));
}
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#include "gpu.cu"

template <class F> static void launch(unsigned grid, unsigned block, F kernel) {
  gridDim.x = grid;
  blockDim.x = block;
  pthread_barrier_init(&whole_block, nullptr, block);
  for (unsigned w = 0; w < block / 32; w++) pthread_barrier_init(&one_warp[w], nullptr, 32);
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block; t++)
      threads.emplace_back([=] {
        threadIdx.x = t;
        kernel();
      });
    for (auto &thread : threads) thread.join();
  }
}

// what: 0 encode, 1 decode, 2 decode and add
extern "C" void run(int what, unsigned rate, unsigned long long blocks, void *values, void *wire) {
  float4 *x = (float4 *)values;
  hb_u32 *w = (hb_u32 *)wire;
  launch(2, 64, [=] {
    switch ((rate + 7) / 8 * 3 + (unsigned)what) {
#define CASE(NW)                                                           \
  case NW * 3: hb_zfp1_encode_##NW(x, blocks, rate, w); break;             \
  case NW * 3 + 1: hb_zfp1_decode_##NW(w, blocks, rate, x); break;         \
  case NW * 3 + 2: hb_zfp1_add_##NW(w, blocks, rate, x); break;
      CASE(1) CASE(2) CASE(3) CASE(4)
    }
  });
}
