// The bit planes of a ZFP block: 32 planes of 4 coefficients in negabinary, the highest first, coded with group tests.
#pragma once
#include "hb_float.h"

// A bit plane of a block is 4 bits, p. n = 1 + index of the last coefficient known to be significant.
// Encoder, index p | n<<4: code<<8 | n'<<4 | length, for the n raw bits and the group tests together.
HB_FN constexpr hb_u32 hb_zfp1_enc_entry(hb_u32 index) {
  hb_u32 n = index >> 4, p = index & 15u, code = p & ((1u << n) - 1u), length = n;
  while (n < 4) {
    if (!(p >> n)) {
      length++;
      break;
    }
    code |= 1u << length++;
    while (n < 3) {
      hb_u32 bit = (p >> n) & 1u;
      code |= bit << length++;
      if (bit) break;
      n++;
    }
    n++;
  }
  return code << 8 | n << 4 | length;
}
// Decoder, index s | next bits of the stream, where s = 128>>n (0 for n = 4): (128>>n')<<8 | length<<4 | p.
HB_FN constexpr hb_u32 hb_zfp1_dec_entry(hb_u32 index) {
  hb_u32 n = 0;
  while (n < 4 && !(index >> (7 - n))) n++;
  hb_u32 w = n < 4 ? index ^ (128u >> n) : index, p = w & ((1u << n) - 1u), length = n;
  while (n < 4) {
    if (!(w >> length++ & 1u)) break;
    while (n < 3) {
      if (w >> length++ & 1u) break;
      n++;
    }
    p |= 1u << n++;
  }
  return (128u >> n) << 8 | length << 4 | p;
}
struct hb_zfp1_tables {
  hb_u16 enc[96];   // 80 used
  hb_u16 dec[258];  // 256 used; a vector gather of 32 bits may read past the last one
};

// 4 rows of 8 bits (row = byte) <-> 8 nibbles (nibble i = bit i of rows 0..3), as swaps of two bits of the bit index
template <class U> HB_FN U hb_rows_to_nibbles(U x) {
  x = hb_dswap(x, 0x0000f0f0u, 12);
  x = hb_dswap(x, 0x00cc00ccu, 6);
  x = hb_dswap(x, 0x0a0a0a0au, 3);
  return hb_dswap(x, 0x22222222u, 1);
}
template <class U> HB_FN U hb_nibbles_to_rows(U x) {
  x = hb_dswap(x, 0x22222222u, 1);
  x = hb_dswap(x, 0x0a0a0a0au, 3);
  x = hb_dswap(x, 0x00cc00ccu, 6);
  return hb_dswap(x, 0x0000f0f0u, 12);
}
// Planes 31-8j .. 24-8j of four coefficients, the highest plane in the lowest nibble.
template <class U> HB_FN U hb_planes(const U *c, int j) {
  int s = 24 - 8 * j;
  U rows = (((c[0] >> s) & 255u) << 24) | (((c[1] >> s) & 255u) << 16) | (((c[2] >> s) & 255u) << 8) |
           ((c[3] >> s) & 255u);
  return hb_rows_to_nibbles(hb_lane<U>::brev(rows));
}
template <class U> HB_FN void hb_unplanes(U q, int j, U *c) {
  int s = 24 - 8 * j;
  U rows = hb_lane<U>::brev(hb_nibbles_to_rows(q));
  c[0] |= (rows >> 24) << s;
  c[1] |= ((rows >> 16) & 255u) << s;
  c[2] |= ((rows >> 8) & 255u) << s;
  c[3] |= (rows & 255u) << s;
}

// Encodes the 8 planes q of each of G groups of blocks, appended at bit `fill` of lo:hi. They have 8 to 36 bits, so
// fill <= 28 never overflows. Each plane depends on the previous one, so G groups are processed in parallel to keep the
// processor busy.
template <class U, int G>
HB_FN void hb_zfp1_encode_8(const U *q, U *n16, U *lo, U *hi, U *fill, const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  for (int j = 0; j < 8; j++) {
    bool raw = L::single && G == 1 && !L::any(n16[0] < 64u);  // No tests remain: the remaining nibbles are raw.
    for (int g = 0; g < G; g++) {
      U code, length;
      if (raw) {
        code = q[g] >> (4 * j);
        length = n16[g] * 0u + (hb_u32)(32 - 4 * j);
      } else {
        U entry = L::look80(t.enc, ((q[g] >> (4 * j)) & 15u) | n16[g]);
        code = entry >> 8;
        length = entry & 7u;
        n16[g] = entry & 0x70u;
      }
      lo[g] |= L::shl(code, fill[g]);
      // planes 0..3 end before bit 9 + 4*4 + 4 = 29
      if (raw || j > 3) hi[g] |= L::shl(code, fill[g] - 32u) | L::shr(code, 32u - fill[g]);
      fill[g] += length;
    }
    if (raw) break;
  }
}

// If the bits end within a scan, libzfp sets the coefficient at the position of the scan. Bits past the end are 0 here,
// so the scan has continued to the last coefficient, `over` positions too far, and the following planes have taken 4
// bits each. This case is detected from the highest bit of the planes, which then belongs to a last coefficient, and
// from the position at which reading ended.
template <class U> HB_FN U hb_zfp1_end_scan(U q, U pos, hb_u32 mb) {
  typedef hb_lane<U> L;
  // Bit 0 belongs to a first coefficient. The bit below the highest is cleared, so rounding cannot reach the next power
  // of two.
  U half = q >> 1;
  U highest = (L::as_bits(L::to_float((typename L::I)(half & ~(half >> 1)))) >> 23) - 126u;
  U over = pos + highest - (31u + mb);
  auto ran_on = ((over - 1u) < 3u) & ((highest & 3u) == 3u);
  U one = q * 0u + 1u;
  return ran_on ? (q ^ L::shl(one, highest)) | L::shl(one, highest - over) : q;
}

// Reads 8 planes of each of G groups of blocks from the windows lo:hi, whose next bit is bit 0; pos advances. A plane
// depends on the previous one; G groups in parallel keep the processor busy.
template <class U, int G>
HB_FN void hb_zfp1_decode_8(U *lo, U *hi, U *s, U *pos, U *q, hb_u32 mb, bool may_end, const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  for (int g = 0; g < G; g++) q[g] = lo[g] * 0u;
  for (int j = 0; j < 8; j++) {
    if (L::single && G == 1 && !L::any(s[0] > 8u)) {  // the rest is raw
      pos[0] += (hb_u32)(32 - 4 * j);
      q[0] |= lo[0] << (4 * j);
      break;
    }
    for (int g = 0; g < G; g++) {
      U entry = L::look256(t.dec, (lo[g] & ((s[g] - 1u) | 15u)) | (s[g] & 0xf0u));
      U length = (entry >> 4) & 7u;
      q[g] |= (entry & 15u) << (4 * j);
      s[g] = entry >> 8;
      pos[g] += length;
      lo[g] = (lo[g] >> length) | (hi[g] << (32u - length));
      hi[g] = hi[g] >> length;
    }
  }
  if (may_end)
    for (int g = 0; g < G; g++) q[g] = hb_zfp1_end_scan(q[g], pos[g], mb);
}
