// A block of ZFP encoded by one thread. Transform and table entries are those of hb_zfp1.h, but the code for planes is
// separate. In hb_zfp1.h, 16 lanes look up one plane at a time in a register. Here, a thread looks up two planes at
// once in shared memory, the number of bits is known at compile time, and words are shifted with funnel shifts. If a
// branch diverges within a warp, both sides are executed, so the code for the usual block avoids such branches.
// tests/codecs compares the bits with those of hb_zfp1.h.
#pragma once
#include "../hb_zfp1.h"

// Two planes at a time for the encoder, n<<8 | both planes: code<<13 | n'<<10 | length; n'<<10 is the place in bytes.
// One plane for the decoder, n<<7 | next 7 bits: length<<11 | n'<<8 | plane, n'<<8 the same.
struct hb_zfp_tables {
  hb_u32 enc[1280];
  hb_u16 dec[640];
};
HB_FN constexpr hb_zfp_tables hb_make_zfp_tables() {
  hb_zfp_tables t{};
  for (hb_u32 n = 0; n < 5; n++) {
    for (hb_u32 planes = 0; planes < 256; planes++) {
      const hb_u32 a = hb_zfp1_enc_entry(n << 4 | (planes & 15u));
      const hb_u32 b = hb_zfp1_enc_entry((a & 0x70u) | planes >> 4);
      const hb_u32 code = a >> 8 | b >> 8 << (a & 15u), length = (a & 15u) + (b & 15u);
      t.enc[n << 8 | planes] = code << 13 | (b >> 4 & 7u) << 10 | length;
    }
    for (hb_u32 bits = 0; bits < 128; bits++) {
      const hb_u32 s = n < 4 ? 128u >> n : 0u;
      const hb_u32 e = hb_zfp1_dec_entry(s | (bits & (n < 4 ? s - 1u : 15u)));
      hb_u32 next = 0;
      while (next < 4 && e >> 8 != 128u >> next) next++;
      t.dec[n << 7 | bits] = (hb_u16)((e >> 4 & 15u) << 11 | next << 8 | (e & 15u));
    }
  }
  return t;
}
#define HB_ZFP_ALL_ENC (4u << 10)  // n = 4 as encoded in the tables
#define HB_ZFP_ALL_DEC (4u << 8)

template <hb_u32 MB> struct hb_zfp_block {
  typedef hb_lane<hb_u32> L;
  static constexpr int NW = (MB + 31) / 32;
  // Words of 8 planes, after the first, that extend into the part of the block with raw planes.
  static constexpr int RAW = MB > 81 ? 3 : MB > 49 ? 2 : MB > 17 ? 1 : 0;

  static HB_FN void encode(const float *f, hb_u32 *w, const hb_zfp_tables &t) {
    hb_u32 bits[4], c[4];
    for (int i = 0; i < 4; i++) bits[i] = L::as_bits(f[i]);
    const hb_u32 m = L::max(L::max(bits[0] & HB_MAGNITUDE, bits[1] & HB_MAGNITUDE),
                            L::max(bits[2] & HB_MAGNITUDE, bits[3] & HB_MAGNITUDE));
    for (int k = 0; k < NW; k++) w[k] = 0;
    float g[4] = {f[0], f[1], f[2], f[3]}, scale = L::as_float((283u << 23) - (m & 0x7f800000u));
    if (m - (29u << 23) >= HB_INFINITY - (29u << 23)) {
      if (m == 0u) return;
      if (m >= HB_INFINITY) {
        for (int i = 0; i < 4; i++) {
          const hb_u32 a = bits[i] & HB_MAGNITUDE;
          if (a >= HB_INFINITY) w[0] |= (a > HB_INFINITY ? 3u : (bits[i] >> 31) + 1u) << (2 * i + 1);
        }
        return;
      }
      // 2^(30-emax) is not a float32
      for (int i = 0; i < 4; i++) g[i] = f[i] * L::as_float(254u << 23);
      scale = L::as_float((156u << 23) - (m & 0x7f800000u));
    }
    hb_i32 v[4];
    for (int i = 0; i < 4; i++) v[i] = L::to_int(g[i] * scale);
    hb_zfp1_forward<hb_u32>(v[0], v[1], v[2], v[3], c);

    w[0] = (m >> 23) * 2u + 3u;
    hb_u32 pos = 9, state = 0;
    append_planes(planes<0>(c), w, pos, state, t);
    if (NW > 1 || pos < MB) {
      if ((state != HB_ZFP_ALL_ENC) & (pos < MB)) {
        seldom_encode(c, w, pos, state, t);
      } else {  // the remaining planes are raw: 17 <= pos <= 45
        hb_u32 q[5] = {};
        if constexpr (RAW > 0) q[1] = planes<1>(c);
        if constexpr (RAW > 1) q[2] = planes<2>(c);
        if constexpr (RAW > 2) q[3] = planes<3>(c);
        const bool far = pos >= 32u;
#pragma unroll
        for (int k = 0; k < NW; k++) {
          const hb_u32 here = __funnelshift_l(q[k], q[k + 1], pos);
          const hb_u32 before = k ? __funnelshift_l(q[k - 1], q[k], pos) : 0u;
          w[k] |= far ? before : here;
        }
      }
    }
    if (MB % 32) w[NW - 1] &= (1u << (MB % 32)) - 1u;
  }

  static HB_FN void decode(const hb_u32 *w, float *f, const hb_zfp_tables &t) {
    if (!(w[0] & 1u)) return decode_no_number(w, f);
    hb_u32 in[NW + 2] = {}, q[4] = {};
    for (int k = 0; k < NW; k++) in[k] = w[k];
    hb_u32 pos = 9, state = 0;
    q[0] = take_planes(__funnelshift_r(in[0], in[1], 8), NW > 1 ? __funnelshift_r(in[1], in[2], 8) : 0u, pos, state,
                       MB < 48, t);
    hb_u32 c[4] = {};
    hb_unplanes(q[0], 0, c);
    if (NW > 1 || pos < MB) {
      if ((state != HB_ZFP_ALL_DEC) & (pos < MB)) {
        seldom_decode(in, c, pos, state, t);
      } else {
        const bool far = pos >= 32u;
#pragma unroll
        for (int i = 0; i < RAW; i++) {
          const hb_u32 low = far ? in[i + 1] : in[i], high = far ? in[i + 2] : in[i + 1];
          hb_unplanes(__funnelshift_r(low, high, pos), i + 1, c);
        }
      }
    }
    hb_zfp1_inverse<hb_u32>(c, f);
    const hb_u32 e = w[0] >> 1 & 255u;
    if (e < 31u) {  // 2^(emax-30) is below the normal range
      for (int i = 0; i < 4; i++) f[i] = f[i] * L::as_float((e + 96u) << 23) * L::as_float(1u << 23);
    } else {
      for (int i = 0; i < 4; i++) f[i] = f[i] * L::as_float((e - 30u) << 23);
    }
  }

 private:
  // The same as hb_planes, implemented with instructions that gather bytes.
  template <hb_u32 J> static HB_FN hb_u32 planes(const hb_u32 *c) {
    constexpr hb_u32 two = (3 - J) | (7 - J) << 4;
    const hb_u32 rows = __byte_perm(__byte_perm(c[3], c[2], two), __byte_perm(c[1], c[0], two), 0x5410);
    return hb_rows_to_nibbles(L::brev(rows));
  }
  // Appends 8 planes, which have 8 to 36 bits, at bit `pos` of the first two words.
  static HB_FN void append_planes(hb_u32 q, hb_u32 *w, hb_u32 &pos, hb_u32 &state, const hb_zfp_tables &t) {
    hb_u64 all = w[0];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const hb_u32 entry = enc(t, q >> (8 * j) & 255u, state), code = entry >> 13;
      if (NW > 1)
        all |= (hb_u64)code << pos;
      else
        w[0] |= L::shl(code, pos);
      pos += entry & 15u;
      state = entry & 0x1c00u;
    }
    if (NW > 1) w[0] = (hb_u32)all, w[1] |= (hb_u32)(all >> 32);
  }
  // Reads 8 planes from the window high:low, whose next bit is bit 1.
  static HB_FN hb_u32 take_planes(hb_u32 low, hb_u32 high, hb_u32 &pos, hb_u32 &state, bool may_end,
                                  const hb_zfp_tables &t) {
    hb_u32 q = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const hb_u32 entry = *(const hb_u16 *)((const hb_byte *)t.dec + ((low & 0xfeu) | state)), length = entry >> 11;
      q |= (entry & 15u) << (4 * j);
      state = entry & 0x700u;
      pos += length;
      low = __funnelshift_r(low, high, length);
      high >>= length;
    }
    if (may_end) {
      // If the bits end within a scan, libzfp sets the coefficient at the position of the scan. Bits past the end are 0
      // here, so the scan has continued to the last coefficient, `over` positions too far. That coefficient's plane is
      // the last one that is not 0, its highest bit is set, and the following planes have 4 bits each.
      const hb_u32 zeros = (hb_u32)__clz((int)q), over = pos - zeros - MB;
      if ((zeros % 4u == 0u) & (over - 1u < 3u)) {
        const hb_u32 top = 0x80000000u >> zeros;
        q = (q ^ top) | top >> over;
      }
    }
    return q;
  }
  static HB_FN hb_u32 enc(const hb_zfp_tables &t, hb_u32 planes, hb_u32 state) {
    return *(const hb_u32 *)((const hb_byte *)t.enc + (planes * 4u + state));
  }

  // A coefficient is still not significant after 8 planes, because it is below 2^-6 of the largest.
  static HB_FN void seldom_encode(const hb_u32 *c, hb_u32 *w, hb_u32 &pos, hb_u32 state, const hb_zfp_tables &t) {
#pragma unroll 1
    for (int word = 1; word < 4 && pos < MB; word++) {
      hb_u32 q = hb_planes(c, word);
      if (state == HB_ZFP_ALL_ENC) {
        put(w, pos, q);
        pos += 32u;
      } else {
#pragma unroll 1
        for (int j = 0; j < 4; j++) {
          const hb_u32 entry = enc(t, q & 255u, state);
          put(w, pos, entry >> 13);
          pos += entry & 15u;
          state = entry & 0x1c00u;
          q >>= 8;
        }
      }
    }
  }
  static HB_FN void put(hb_u32 *w, hb_u32 pos, hb_u32 x) {
#pragma unroll
    for (int k = 0; k < NW; k++) w[k] |= L::shl(x, pos - 32u * k) | (k ? L::shr(x, 32u * k - pos) : 0u);
  }
  static HB_FN void seldom_decode(const hb_u32 *in, hb_u32 *c, hb_u32 &pos, hb_u32 state, const hb_zfp_tables &t) {
#pragma unroll 1
    for (int word = 1; word < 4 && pos < MB; word++) {
      hb_u32 low = 0, high = 0;
#pragma unroll
      for (int k = 0; k < NW; k++) {
        low |= L::shr(in[k], pos - 32u * k) | L::shl(in[k], 32u * k - pos);
        high |= k ? L::shr(in[k], pos + 32u - 32u * k) | L::shl(in[k], 32u * k - 32u - pos) : 0u;
      }
      hb_u32 q = low;
      if (state == HB_ZFP_ALL_DEC)
        pos += 32u;
      else
        q = take_planes(low << 1, __funnelshift_l(low, high, 1), pos, state, true, t);
      hb_unplanes(q, word, c);
    }
  }
  // Bit 0 is clear: the block has zeros, or classes of infinities and NaN.
  static HB_FN void decode_no_number(const hb_u32 *w, float *f) {
    hb_u32 any = 0;
    for (int k = 0; k < NW; k++) any |= w[k];
    for (int i = 0; i < 4; i++) {
      const hb_u32 k = w[0] >> (2 * i + 1) & 3u;
      const hb_u32 special = k == 1u ? HB_INFINITY : k == 2u ? HB_INFINITY | 0x80000000u : HB_NAN;
      f[i] = L::as_float(any ? special : 0u);
    }
  }
};
