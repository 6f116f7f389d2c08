// Unaligned access to single values of any type, and block-wide operations.
#pragma once
#include "words.h"

// Unsigned integer type with this number of bytes.
template <int SIZE> HB_FN hb_u64 hb_load_raw(const hb_byte *p) {
  if constexpr (SIZE == 8) return hb_load_word(p) | (hb_u64)hb_load_word(p + 4) << 32;
  else if constexpr (SIZE == 4) return hb_load_word(p);
  else if constexpr (SIZE == 2) return ((hb_u64)p & 1u) ? hb_load_half(p) : *(const hb_u16 *)p;
  else return *p;
}
template <int SIZE> HB_FN void hb_store_raw(hb_byte *p, hb_u64 x) {
  if constexpr (SIZE >= 4) hb_store_word(p, (hb_u32)x);
  if constexpr (SIZE == 8) hb_store_word(p + 4, (hb_u32)(x >> 32));
  if constexpr (SIZE == 2) {
    if ((hb_u64)p & 1u) hb_store_half(p, (hb_u32)x);
    else *(hb_u16 *)p = (hb_u16)x;
  }
  if constexpr (SIZE == 1) *p = (hb_byte)x;
}
template <int T> HB_FN float hb_widen_raw(hb_u64 raw) {
  const hb_u32 w = (hb_u32)raw;
  float f[2];
  hb_type<T>::template widen<hb_size_of(T) == 4 ? 1 : 2>(&w, f);
  return f[0];
}
template <int T> HB_FN hb_u64 hb_narrow_raw(float value) {
  const float f[2] = {value, 0.0f};
  hb_u32 w;
  hb_type<T>::template narrow<hb_size_of(T) == 4 ? 1 : 2>(f, &w);
  return w;
}
// Overwrites the value of type O at p with a value of type T, or adds the value to it.
template <int T, int O, bool ADD> HB_FN void hb_put_raw(hb_byte *p, hb_u64 raw) {
  if constexpr (T == O && !ADD) {
    hb_store_raw<hb_size_of(T)>(p, raw);
  } else if constexpr (T == HB_F64 && O == HB_F64) {
    const hb_u64 old = hb_load_raw<8>(p);
    const double sum = __hiloint2double((int)(old >> 32), (int)old) + __hiloint2double((int)(raw >> 32), (int)raw);
    const hb_u64 bits = (hb_u64)(hb_u32)__double2hiint(sum) << 32 | (hb_u32)__double2loint(sum);
    hb_store_raw<8>(p, sum == sum ? bits : 0x7ffull << 52 | 1ull << 51);
  } else if constexpr (T < HB_F64 && O < HB_F64) {
    float x = hb_widen_raw<T>(raw);
    if (ADD) x = hb_add(hb_widen_raw<O>(hb_load_raw<hb_size_of(O)>(p)), x);
    hb_store_raw<hb_size_of(O)>(p, hb_narrow_raw<O>(x));
  }
}

// Returns the sum over the previous threads of the block; total: the sum over all threads.
HB_FN hb_u64 hb_block_below(hb_u64 x, hb_u64 &total) {
  __shared__ hb_u64 sums[HB_WARPS];
  const hb_u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
  hb_u64 sum = x;
#pragma unroll
  for (hb_u32 s = 1; s < 32u; s *= 2) {
    const hb_u64 y = __shfl_up_sync(HB_EVERY, sum, s);
    if (lane >= s) sum += y;
  }
  __syncthreads();
  if (lane == 31u) sums[warp] = sum;
  __syncthreads();
  hb_u64 before = 0;
  total = 0;
#pragma unroll
  for (hb_u32 w = 0; w < HB_WARPS; w++) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before + sum - x;
}
// Returns whether this is the last block of the grid to call the function. The last block sees the writes of all
// others.
HB_FN bool hb_last_block(hb_u64 *arrived) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(arrived, 1ull) + 1u == gridDim.x;
  __syncthreads();
  __threadfence();
  return last;
}
