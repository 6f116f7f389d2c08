// Rotations before a codec: y = H (s x) / sqrt(n) of each n consecutive values, n a power of two from 16 to 1024, H the
// Hadamard matrix in Sylvester's order, s signs. The inverse is s (H y) / sqrt(n). An outlier is spread over n values,
// so it alone does not determine the scale of its block. If fewer than n values remain at the end, they are not
// rotated. Signs are all 1, or bits of random words that are the same on sender and receiver. The signs repeat after
// 1024 values. The order of additions is fixed: steps of 1, 2, 4, ... values. If a sum is NaN, it becomes one canonical
// quiet NaN.
#pragma once
#include "hb_float.h"
#include "hb_random.h"

// how the rotation is stored in HB_PARAM and `param`
#define HB_CODEC_PARAM ((1ull << 40) - 1)
#define HB_ROTATION(param) ((int)((param) >> 40 & 15))  // logarithm of n, or 0 for no rotation
#define HB_ROTATION_SIGNS(param) ((int)((param) >> 44 & 1))

// 1 / sqrt(2^K) in float32
template <int K> HB_FN float hb_rotation_factor() {
  return (K % 2 ? 0.70710678f : 1.0f) / (float)(1 << K / 2);
}
// the word with the signs of values 32 i to 32 i + 31, the first value in the lowest bit; 1 is negative
HB_FN hb_u32 hb_rotation_signs(hb_u32 i) { return hb_mix<hb_u32>((i & 31u) * 0x9e3779b9u + 0x68627574u); }

// a sum of a rotation, with one canonical NaN
template <class U> HB_FN U hb_rotated(U bits) { return (bits & HB_MAGNITUDE) > HB_INFINITY ? bits * 0u + HB_NAN : bits; }
