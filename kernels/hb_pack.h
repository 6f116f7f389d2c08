// Moves blocks of 4 * R bits to and from the stream, 16 at a time: 16 blocks are exactly R words of 64 bits, so groups
// never share a word. Bits fill each little-endian word from its lowest bit. All shifts are constants.
#pragma once
#include "hb_lane.h"

typedef __UINT64_TYPE__ hb_u64;
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the stream is made of little-endian words");

// w[k][b]: word k of block b, k < ceil(R / 8), zero above bit 4 * R.
template <int R> HB_FN void hb_pack16(const hb_u32 (*w)[16], unsigned char *stream) {
  if constexpr (R == 8) {
    __builtin_memcpy(stream, w[0], 64);
  } else if constexpr (R == 4) {
    hb_u16 half[16];
    for (int b = 0; b < 16; b++) half[b] = (hb_u16)w[0][b];
    __builtin_memcpy(stream, half, 32);
  } else if constexpr (R % 8 == 0) {
    constexpr int NW = R / 8;
    hb_u32 out[16 * NW];
    for (int b = 0; b < 16; b++)
      for (int k = 0; k < NW; k++) out[NW * b + k] = w[k][b];
    __builtin_memcpy(stream, out, 64 * NW);
  } else {
    hb_u64 out[R + 2] = {};
#pragma GCC unroll 16
    for (int b = 0; b < 16; b++) {
#pragma GCC unroll 2
      for (int half = 0; half < (R > 16 ? 2 : 1); half++) {
        const int at = 4 * R * b + 64 * half, i = at / 64, s = at % 64;
        hb_u64 x = w[2 * half][b];
        if (8 * (2 * half + 1) < R) x |= (hb_u64)w[2 * half + 1][b] << 32;
        out[i] |= x << s;
        if (s) out[i + 1] |= x >> (64 - s);
      }
    }
    __builtin_memcpy(stream, out, 8 * R);
  }
}
template <int R> HB_FN void hb_unpack16(const unsigned char *stream, hb_u32 (*w)[16]) {
  if constexpr (R == 8) {
    __builtin_memcpy(w[0], stream, 64);
  } else if constexpr (R == 4) {
    hb_u16 half[16];
    __builtin_memcpy(half, stream, 32);
    for (int b = 0; b < 16; b++) w[0][b] = half[b];
  } else if constexpr (R % 8 == 0) {
    constexpr int NW = R / 8;
    hb_u32 in[16 * NW];
    __builtin_memcpy(in, stream, 64 * NW);
    for (int b = 0; b < 16; b++)
      for (int k = 0; k < NW; k++) w[k][b] = in[NW * b + k];
  } else {
    hb_u64 in[R + 2];
    __builtin_memcpy(in, stream, 8 * R);
    in[R] = in[R + 1] = 0;
#pragma GCC unroll 16
    for (int b = 0; b < 16; b++) {
#pragma GCC unroll 2
      for (int half = 0; half < (R > 16 ? 2 : 1); half++) {
        const int at = 4 * R * b + 64 * half, i = at / 64, s = at % 64, bits = 4 * R - 64 * half;
        hb_u64 x = in[i] >> s;
        if (s) x |= in[i + 1] << (64 - s);
        if (bits < 64) x &= ((hb_u64)1 << (bits & 63)) - 1;
        w[2 * half][b] = (hb_u32)x;
        if (8 * (2 * half + 1) < R) w[2 * half + 1][b] = (hb_u32)(x >> 32);
      }
    }
  }
}
