// Finds the k-th largest magnitude of all values with one launch per digit, without synchronizing with the host. The
// digits are the same as in the CPU front end: 11, 10 and 10 bits, the highest first.
#pragma once
#include "elements.h"
#include "order.h"
#include "../hb_sparse.h"

#define HB_SELECT_DIGITS 3

// hb_state, and the additional shared state of sparse kernels.
struct hb_sparse_state {
  hb_state head;
  hb_u64 magnitude;  // larger magnitudes are sent
  hb_u64 equal;      // this many of the values with this magnitude are sent, the first ones; during the search for
                     // the magnitude: the rank of the magnitude among the remaining values
  hb_u64 digit, sent, arrived[4], spare[4];
  hb_u64 bins[HB_SELECT_DIGITS][2048];  // of topk alone
};
#define HB_SPARSE_STATE_WORDS 16

// Called by all blocks. magnitude(i): bits of value i as float32.
template <class F> HB_FN void hb_select_digit(hb_sparse_state *state, hb_u64 n, hb_u64 k, F magnitude) {
  __shared__ hb_u32 bins[2048];
  const hb_u32 digit = (hb_u32)state->digit, shift = 20u - 10u * digit, count = digit ? 1024u : 2048u;
  const hb_u32 base = (hb_u32)state->magnitude, span = count << shift;
  if (digit) k = state->equal;
  for (hb_u32 b = threadIdx.x; b < count; b += HB_THREADS) bins[b] = 0;
  __syncthreads();
#pragma unroll 4
  for (hb_u64 i = (hb_u64)blockIdx.x * HB_THREADS + threadIdx.x; i < n; i += (hb_u64)gridDim.x * HB_THREADS) {
    const hb_u32 x = magnitude(i) - base;
    if (x < span) atomicAdd(&bins[x >> shift], 1u);
  }
  __syncthreads();
  for (hb_u32 b = threadIdx.x; b < count; b += HB_THREADS)
    if (bins[b]) atomicAdd(&state->bins[digit][b], (hb_u64)bins[b]);
  if (!hb_last_block(&state->arrived[digit])) return;

  const volatile hb_u64 *all = state->bins[digit];
  const hb_u32 each = count / HB_THREADS, top = count - each * threadIdx.x;  // this thread's bins: the `each` below top
  hb_u64 mine = 0, total;
  for (hb_u32 j = 1; j <= each; j++) mine += all[top - j];
  hb_u64 before = hb_block_below(mine, total);
  if (before < k && k <= before + mine) {
    hb_u32 b = top - 1u;
    while (before + all[b] < k) before += all[b--];
    state->magnitude = base + (b << shift);
    state->equal = k - before;
    state->digit = digit + 1u;
  }
}
