// ZFP fixed rate, one dimension, float32: a block of 4 values becomes mb = 4 * rate bits, 16 <= mb <= 128.
// Written from the published format (LLNL zfp, mode "fixed rate"); the bits are those of libzfp for every block whose
// largest magnitude is at least 2^-98 (below that libzfp's scale overflows to infinity, ours is applied in two steps).
//
// One addition in code space that libzfp leaves unused: bit 0 clear with other bits set is a block that holds a NaN
// or an infinity. Bits 1..8 then hold a class of 2 bits for each value: 0 finite, 1 +Inf, 2 -Inf, 3 NaN. Infinities
// come back with their sign and place; every other value of such a block comes back as NaN.
#pragma once
#include "hb_float.h"

#define HB_NEGABINARY 0xaaaaaaaau

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

// ------------------------------------------------------------------------------------------------ encode
// Code the 8 planes of q, appended at bit `fill` of lo:hi. They make 8..36 bits, so fill <= 28 never overruns.
template <class U> HB_FN void hb_zfp1_encode_8(U q, U &n16, U &lo, U &hi, U &fill, const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  for (int j = 0; j < 8; j++) {
    U code, length;
    bool raw = L::single && !L::any(n16 < 64u);  // nothing left to test: the rest are raw nibbles
    if (raw) {
      code = q >> (4 * j);
      length = n16 * 0u + (hb_u32)(32 - 4 * j);
    } else {
      U entry = L::look80(t.enc, ((q >> (4 * j)) & 15u) | n16);
      code = entry >> 8;
      length = entry & 7u;
      n16 = entry & 0x70u;
    }
    lo |= L::shl(code, fill);
    // planes 0..3 end before bit 9 + 4*4 + 4 = 29
    if (raw || j > 3) hi |= L::shl(code, fill - 32u) | L::shr(code, 32u - fill);
    fill += length;
    if (raw) break;
  }
}

// f: 4 values a lane; w: NW words of 32 bits a lane out, 32 * (NW - 1) < mb <= 32 * NW.
template <class U, int NW>
HB_FN void hb_zfp1_encode(const typename hb_lane<U>::F *f, hb_u32 mb, U *w, const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  typedef typename L::I I;
  typedef typename L::F F;
  U bits[4], c[4];
  for (int i = 0; i < 4; i++) bits[i] = L::as_bits(f[i]);
  U m = L::max(L::max(bits[0] & HB_MAGNITUDE, bits[1] & HB_MAGNITUDE),
               L::max(bits[2] & HB_MAGNITUDE, bits[3] & HB_MAGNITUDE));
  const U zero = m * 0u;
  bool special = L::any(m >= HB_INFINITY);
  F v[4];
  for (int i = 0; i < 4; i++) v[i] = f[i];
  if (special)  // a conversion to integer must not meet them
    for (int i = 0; i < 4; i++) v[i] = L::as_float(m >= HB_INFINITY ? zero : bits[i]);
  U e = (m >> 23) + 1u;   // exponent of the block as the stream holds it, 1..255
  U scale = 284u - e;     // exponent field of 2^(30-emax)
  if (L::any(scale > 254u)) {
    U first = scale > 254u ? (U)(zero + 254u) : scale;
    F s1 = L::as_float(first << 23), s2 = L::as_float((scale - first + 127u) << 23);
    for (int i = 0; i < 4; i++) v[i] = v[i] * s1 * s2;
  } else {
    F s = L::as_float(scale << 23);
    for (int i = 0; i < 4; i++) v[i] = v[i] * s;
  }
  I x = L::to_int(v[0]), y = L::to_int(v[1]), z = L::to_int(v[2]), u = L::to_int(v[3]);
  x += u; x >>= 1; u -= x;
  z += y; z >>= 1; y -= z;
  x += z; x >>= 1; z -= x;
  u += y; u >>= 1; y -= u;
  u += y >> 1; y -= u >> 1;
  c[0] = ((U)x + HB_NEGABINARY) ^ HB_NEGABINARY;
  c[1] = ((U)y + HB_NEGABINARY) ^ HB_NEGABINARY;
  c[2] = ((U)z + HB_NEGABINARY) ^ HB_NEGABINARY;
  c[3] = ((U)u + HB_NEGABINARY) ^ HB_NEGABINARY;

  U o[NW + 3];
  for (int k = 0; k < NW + 3; k++) o[k] = zero;
  o[0] = e * 2u + 1u;
  U pos = zero + 9u, n16 = zero;
  hb_zfp1_encode_8(hb_planes(c, 0), n16, o[0], o[1], pos, t);
  int word = 1;
  while (word < 4 && L::any((n16 < 64u) & (pos < mb))) {  // seldom: a last coefficient below 2^-6 of the largest
    U lo = zero, hi = zero, fill = zero;
    hb_zfp1_encode_8(hb_planes(c, word), n16, lo, hi, fill, t);
    for (int k = 0; k < NW; k++) {
      U at = pos - (hb_u32)(32 * k);
      o[k] |= L::shl(lo, at) | L::shr(lo, 0u - at) | L::shl(hi, at + 32u) | L::shr(hi, (hb_u32)-32 - at);
    }
    pos += fill;
    word++;
  }
  // Planes that are left are raw: the fixed-rate stream is a prefix of the unlimited one, so they are only shifted in.
  if (word == 1) {  // 17 <= pos <= 45
    for (int i = 1; i <= NW && i < 4; i++) {
      if (mb <= (hb_u32)(32 * i - 15)) break;
      U q = hb_planes(c, i);
      o[i - 1] |= L::shl(q, pos);
      o[i] |= L::shl(q, pos - 32u) | L::shr(q, 32u - pos);
      o[i + 1] |= L::shr(q, 64u - pos);
    }
  } else {
    for (; word < 4; word++) {
      U q = hb_planes(c, word);
      for (int k = 0; k < NW; k++) o[k] |= L::shl(q, pos - (hb_u32)(32 * k)) | L::shr(q, (hb_u32)(32 * k) - pos);
      pos += 32u;
    }
  }
  if (mb & 31u) o[NW - 1] &= (1u << (mb & 31u)) - 1u;
  for (int k = 0; k < NW; k++) w[k] = m != 0u ? o[k] : zero;
  if (special) {
    U classes = zero;
    for (int i = 0; i < 4; i++) {
      U a = bits[i] & HB_MAGNITUDE;
      U k = a > HB_INFINITY ? (U)(zero + 3u) : (bits[i] >> 31) + 1u;
      classes |= (a >= HB_INFINITY ? k : zero) << (2 * i + 1);
    }
    for (int k = 0; k < NW; k++) w[k] = m >= HB_INFINITY ? (k == 0 ? classes : zero) : w[k];
  }
}

// ------------------------------------------------------------------------------------------------ decode
// Read 8 planes from the window lo:hi, of which the next bit is bit 0; returns them, pos moves on.
template <class U>
HB_FN U hb_zfp1_decode_8(U lo, U hi, U &s, U &pos, hb_u32 mb, bool may_end, const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  U q = lo * 0u;
  for (int j = 0; j < 8; j++) {
    if (L::single && !L::any(s > 8u)) {
      pos += (hb_u32)(32 - 4 * j);
      return q | lo << (4 * j);
    }
    U entry = L::look256(t.dec, (lo & ((s - 1u) | 15u)) | (s & 0xf0u));
    U p = entry & 15u, length = (entry >> 4) & 7u;
    s = entry >> 8;
    pos += length;
    if (may_end) {
      // Where the bits end inside a scan libzfp sets the coefficient at which the scan stood; bits past the end
      // are 0 here, so that the scan ran on to the last coefficient, by `over` places too far.
      U over = pos - mb;
      p = ((over - 1u) < 3u) & ((p & 8u) != 0u) ? (p & 7u) | L::shr(over * 0u + 8u, over) : p;
    }
    q |= p << (4 * j);
    lo = (lo >> length) | (hi << (32u - length));
    hi = hi >> length;
  }
  return q;
}

// w: NW words a lane, zero above bit mb; f: 4 values a lane out. Any input is safe.
template <class U, int NW>
HB_FN void hb_zfp1_decode(const U *w, hb_u32 mb, typename hb_lane<U>::F *f, const hb_zfp1_tables &t) {
  typedef hb_lane<U> L;
  typedef typename L::I I;
  typedef typename L::F F;
  const U zero = w[0] * 0u;
  U in[NW + 3];
  for (int k = 0; k < NW + 3; k++) in[k] = k < NW ? w[k] : zero;
  U e = (in[0] >> 1) & 255u;
  U pos = zero + 9u, s = zero + 128u, q[4];
  q[0] = hb_zfp1_decode_8<U>((in[0] >> 9) | (in[1] << 23), (in[1] >> 9) | (in[2] << 23), s, pos, mb, mb < 48u, t);
  int word = 1;
  for (int i = 1; i < 4; i++) q[i] = zero;
  while (word < 4 && L::any((s > 8u) & (pos < mb))) {
    U lo = zero, hi = zero;
    for (int k = 0; k < NW; k++) {
      U at = pos - (hb_u32)(32 * k);
      lo |= L::shr(in[k], at) | L::shl(in[k], 0u - at);
      hi |= L::shr(in[k], at + 32u) | L::shl(in[k], (hb_u32)-32 - at);
    }
    U r = hb_zfp1_decode_8<U>(lo, hi, s, pos, mb, true, t);
    for (int i = 1; i < 4; i++)
      if (i == word) q[i] = r;
    word++;
  }
  bool all = word > 1;
  if (!all) {
    for (int i = 1; i <= NW && i < 4; i++) {
      if (mb <= (hb_u32)(32 * i - 15)) break;
      q[i] = L::shr(in[i - 1], pos) | L::shr(in[i], pos - 32u);
      q[i] |= L::shl(in[i], 32u - pos) | L::shl(in[i + 1], 64u - pos);
    }
  } else {
    for (int i = 2; i < 4; i++) {
      if (i < word) continue;
      for (int k = 0; k < NW; k++) {
        U at = pos - (hb_u32)(32 * k);
        q[i] |= L::shr(in[k], at) | L::shl(in[k], 0u - at);
      }
      pos += 32u;
    }
  }
  U c[4] = {zero, zero, zero, zero};
  for (int i = 0; i < 4; i++)
    if (i <= NW || all) hb_unplanes(q[i], i, c);
  // unsigned: a truncated or hostile stream overflows here
  U x = (c[0] ^ HB_NEGABINARY) - HB_NEGABINARY, y = (c[1] ^ HB_NEGABINARY) - HB_NEGABINARY;
  U z = (c[2] ^ HB_NEGABINARY) - HB_NEGABINARY, u = (c[3] ^ HB_NEGABINARY) - HB_NEGABINARY;
  y += (U)((I)u >> 1); u -= (U)((I)y >> 1);
  y += u; u -= y - u;
  z += x; x -= z - x;
  y += z; z -= y - z;
  u += x; x -= u - x;
  f[0] = L::to_float((I)x);
  f[1] = L::to_float((I)y);
  f[2] = L::to_float((I)z);
  f[3] = L::to_float((I)u);
  if (L::any(e < 31u)) {  // 2^(emax-30) is below the normal range
    U low = zero + 1u, rest = e + 96u;
    F s1 = L::as_float((e < 31u ? low : e - 30u) << 23), s2 = L::as_float((e < 31u ? rest : zero + 127u) << 23);
    for (int i = 0; i < 4; i++) f[i] = f[i] * s2 * s1;
  } else {
    F s1 = L::as_float((e - 30u) << 23);
    for (int i = 0; i < 4; i++) f[i] = f[i] * s1;
  }
  U keep = 0u - (in[0] & 1u);
  if (!L::any(keep == 0u)) return;
  U other = in[0];
  for (int k = 1; k < NW; k++) other |= in[k];
  for (int i = 0; i < 4; i++) {
    U k = (in[0] >> (2 * i + 1)) & 3u;
    U special = k == 2u ? (U)(zero + (HB_INFINITY | 0x80000000u)) : (U)(zero + HB_NAN);
    special = k == 1u ? (U)(zero + HB_INFINITY) : special;
    U value = L::as_bits(f[i]) & keep;
    f[i] = L::as_float((keep == 0u) & (other != 0u) ? special : value);
  }
}
