// Structured sparsity: of each 4 values, the two of largest magnitude are sent in order, with two positions of 2 bits
// each, the first one lowest. If magnitudes are equal, the earlier value is kept. NaN counts as larger than infinity.
//   wire: the kept values in their own type; then the positions, 4 bits for each 4 values, the earlier ones in the low
//   half of a byte. A short last group is filled with zeros.
#pragma once
#include "hb_float.h"

// bits: 4 values per lane; kept: 2; returns the positions
template <class U> HB_FN U hb_2of4_encode(const U *bits, U *kept) {
  U a[4], zero = bits[0] * 0u;
  for (int i = 0; i < 4; i++) a[i] = bits[i] & HB_MAGNITUDE;
  // number of values that precede each value in the order of magnitudes
  U rank[4] = {zero, zero, zero, zero};
  for (int i = 0; i < 4; i++)
    for (int j = i + 1; j < 4; j++) {
      U later = a[j] > a[i] ? zero + 1u : zero;
      rank[i] += later;
      rank[j] += 1u - later;
    }
  U first = zero, second = zero;
  for (int i = 0; i < 4; i++) {  // the last kept value is the second; from the other end, it is the first
    auto kept_low = rank[3 - i] < 2u, kept_high = rank[i] < 2u;
    kept[0] = kept_low ? bits[3 - i] : (i ? kept[0] : zero);
    first = kept_low ? zero + (hb_u32)(3 - i) : first;
    kept[1] = kept_high ? bits[i] : (i ? kept[1] : zero);
    second = kept_high ? zero + (hb_u32)i : second;
  }
  return first | second << 2;
}
// bits: 4 values per lane (output)
template <class U> HB_FN void hb_2of4_decode(const U *kept, U places, U *bits) {
  U first = places & 3u, second = (places >> 2) & 3u, zero = places * 0u;
  for (hb_u32 i = 0; i < 4; i++) {
    bits[i] = first == i ? kept[0] : zero;
    bits[i] = second == i ? kept[1] : bits[i];
  }
}
