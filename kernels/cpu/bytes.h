// Vectors of bytes: masks with one bit per byte, and operations that compress and expand masked bytes.
#pragma once
#include "front.h"

namespace {
#if defined(__AVX2__)
#include "../hb_order8.h"
typedef byte bytes __attribute__((vector_size(32)));
typedef hb_u32 byte_bits;  // one bit per byte
#else
typedef byte bytes __attribute__((vector_size(16)));
typedef hb_u16 byte_bits;
#endif
constexpr int BYTES = sizeof(bytes);

HB_FN bytes load_bytes(const byte *p) {
  bytes x;
  __builtin_memcpy(&x, p, BYTES);
  return x;
}
HB_FN void store_bytes(byte *p, bytes x) { __builtin_memcpy(p, &x, BYTES); }
HB_FN byte_bits load_bits(const byte *p) {
  byte_bits x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
HB_FN void store_bits(byte *p, byte_bits x) { __builtin_memcpy(p, &x, sizeof x); }

// the highest bit of each byte
HB_FN byte_bits top_bits(bytes x) {
#if defined(__AVX2__)
  return (byte_bits)_mm256_movemask_epi8((__m256i)x);
#elif defined(__SSE2__)
  return (byte_bits)_mm_movemask_epi8((__m128i)x);
#else
  byte_bits r = 0;
  for (int i = 0; i < BYTES; i++) r = (byte_bits)(r | (x[i] >> 7) << i);
  return r;
#endif
}
// all ones where the bit is set
HB_FN bytes spread_bits(byte_bits bits) {
#if defined(__AVX512BW__)
  return (bytes)_mm256_movm_epi8(bits);
#else
  typedef uint64_t eights __attribute__((vector_size(BYTES)));
  const uint64_t each = 0x0101010101010101u;
  const byte place[8] = {1, 2, 4, 8, 16, 32, 64, 128};
  uint64_t one;
  __builtin_memcpy(&one, place, 8);
#if defined(__AVX2__)
  const __m256i eight = _mm256_setr_epi64x(0, each, 2 * each, 3 * each);
  eights x = (eights)_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), eight);
#else
  eights x = {(bits & 255u) * each, (bits >> 8) * each};
#endif
  const bytes places = (bytes)(one + eights{});
  return (bytes)(((bytes)x & places) == places);
#endif
}

#if defined(__AVX2__)
HB_FN __m128i eight_of(const byte *p, const hb_order8 &order, hb_u32 mask) {
  const __m128i *at = (const __m128i *)order.at[mask & 255u];
  return _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)p), _mm_loadl_epi64(at));
}
#endif
// Writes the masked bytes of x to p, in order, and returns their number. p needs space for a full vector.
HB_FN int compress_bytes(bytes x, byte_bits mask, byte *p) {
  byte from[BYTES];
  store_bytes(from, x);
  int n = 0;
#if defined(__AVX2__)
  for (int i = 0; i < BYTES; i += 8) {
    _mm_storel_epi64((__m128i *)(p + n), eight_of(from + i, hb_compress8, mask >> i));
    n += __builtin_popcount(mask >> i & 255u);
  }
#else
  for (hb_u32 left = mask; left; left &= left - 1u) p[n++] = from[__builtin_ctz(left)];
#endif
  return n;
}
// Inverse operation: the bytes outside the mask are undefined. Reads a full vector from p.
HB_FN bytes expand_bytes(byte_bits mask, const byte *p) {
#if defined(__AVX2__)
  __m128i part[4];
  for (int i = 0; i < 4; i++) {
    part[i] = eight_of(p, hb_expand8, mask >> 8 * i);
    p += __builtin_popcount(mask >> 8 * i & 255u);
  }
  __m128i low = _mm_unpacklo_epi64(part[0], part[1]), high = _mm_unpacklo_epi64(part[2], part[3]);
  return (bytes)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
#else
  byte to[BYTES] = {};
  for (hb_u32 left = mask; left; left &= left - 1u) to[__builtin_ctz(left)] = *p++;
  return load_bytes(to);
#endif
}

// Writes the low k bits of the bytes as planes of `stride` bytes, lowest bit first. p: position of this vector in a
// plane.
HB_FN void put_planes(bytes x, int k, byte *p, uint64_t stride) {
  x <<= 8 - k;
  for (int b = k - 1; b >= 0; b--) {
    store_bits(p + (uint64_t)b * stride, top_bits(x));
    x += x;
  }
}
HB_FN bytes get_planes(int k, const byte *p, uint64_t stride) {
  bytes x = {};
  for (int b = k - 1; b >= 0; b--) x = x + x - spread_bits(load_bits(p + (uint64_t)b * stride));
  return x;
}
}  // namespace
