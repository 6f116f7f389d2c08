// One bit per value, and one float32 per block of B values, B a power of two from 32 to 1024: the sign, and the mean
// magnitude, which minimizes the squared error.
//   wire: a word of 32 bits for each 32 values, bit i set for a negative value i; then the scales
// Sums are rounded, so their order is part of the format. Lane l of L = min(B / 4, 32) holds the values 4l .. 4l + 3 of
// each 4 L values. A lane adds the magnitudes of four values as (0 + 1) + (2 + 3), and then adds these sums in order.
// Then the lanes are added by halves: l to l + L / 2, then L / 4, down to 1. A short last block is filled with zeros.
#pragma once
#include "hb_float.h"

template <class U> HB_FN typename hb_lane<U>::F hb_sign_sum4(const typename hb_lane<U>::F *f) {
  typedef hb_lane<U> L;
  typename L::F a[4];
  for (int i = 0; i < 4; i++) a[i] = L::as_float(L::as_bits(f[i]) & HB_MAGNITUDE);
  return (a[0] + a[1]) + (a[2] + a[3]);
}
// Returns the bits of the scale. count: number of values in the block, without padding
HB_FN hb_u32 hb_sign_scale(float sum, hb_u32 count) {
  hb_u32 bits = hb_lane<hb_u32>::as_bits(sum / (float)count);
  return bits > HB_INFINITY ? HB_NAN : bits;
}
