// Concatenation of pieces of unknown size. Each thread block draws a piece number and encodes the piece. The position
// of a piece is the sum of the sizes that previous pieces have published (decoupled look-back: Merrill and Garland,
// 2016). Numbers are drawn in the order in which blocks start, so a block waits only for running blocks, and any number
// of blocks may be resident.
#pragma once
#include "warp.h"

// State that the host sets to zero before the kernels of a call. The host reads `bytes` and `fault` afterwards.
struct hb_state {
  hb_u64 ticket;
  hb_u64 bytes;  // of the wire
  hb_u64 fault;  // the wire is malformed
  hb_u64 spare;
};
HB_FN volatile hb_u64 *hb_rest_of(hb_state *state) { return (volatile hb_u64 *)(state + 1); }
HB_FN void hb_fault(hb_state *state) { *(volatile hb_u64 *)&state->fault = 1; }

// State of a piece in a single word, so that flag and number are read at once.
#define HB_TOLD_SIZE (1ull << 62)  // the size of this piece
#define HB_TOLD_ALL (2ull << 62)   // the size of this piece and of all previous pieces
#define HB_TOLD_NUMBER (HB_TOLD_SIZE - 1)

// Draws a number that is unique among blocks. All threads must call it.
HB_FN hb_u64 hb_draw(hb_state *state) {
  __shared__ hb_u64 drawn;
  __syncthreads();
  if (threadIdx.x == 0) drawn = atomicAdd(&state->ticket, 1ull);
  __syncthreads();
  return drawn;
}

// Returns the total size of all previous pieces, and publishes the size of this piece. Called by one warp. `told`: one
// word per piece, initially 0.
HB_FN hb_u64 hb_place(volatile hb_u64 *told, hb_u64 piece, hb_u64 size, hb_u32 lane) {
  if (lane == 0) told[piece] = piece ? HB_TOLD_SIZE | size : HB_TOLD_ALL | size;
  hb_u64 before = 0;
  for (hb_u64 end = piece; end;) {
    hb_u64 word = HB_TOLD_ALL;  // before the first piece
    if (lane < end)
      while (!(word = told[end - 1 - lane])) __nanosleep(20);
    const hb_u32 complete = __ballot_sync(HB_EVERY, word >= HB_TOLD_ALL);
    const hb_u32 last = complete ? (hb_u32)__ffs((int)complete) - 1u : 31u;
    word = lane <= last ? word & HB_TOLD_NUMBER : 0;
#pragma unroll
    for (hb_u32 half = 16; half; half /= 2) word += __shfl_xor_sync(HB_EVERY, word, half);
    before += word;
    if (complete) break;
    end -= 32;
  }
  if (lane == 0 && piece) told[piece] = HB_TOLD_ALL | (before + size);
  return before;
}
