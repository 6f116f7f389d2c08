// Runs every codec with valid values, damaged streams and random bytes. Buffers have the exact size, so the address
// sanitizer detects every access out of bounds. The program is linked with one build of the kernels.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hb_kernels.h"

#ifndef BUILD
#define BUILD hb_kernels_generic
#endif
#ifndef OVERRUN  // 1: a planted fault, in which one codec is called with too large a number of values
#define OVERRUN 0
#endif
#ifndef VALUES
#define VALUES 10000000
#endif
extern "C" const hb_kernels BUILD;

static uint64_t state = 1;
static uint64_t random64() {
  uint64_t z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
static unsigned char *room_for(size_t bytes) { return (unsigned char *)malloc(bytes + 1) + 1; }  // unaligned on purpose
static void release(unsigned char *p) { free(p - 1); }
static unsigned char *filled(size_t bytes, uint64_t kind) {  // 0: random bits, 1: similar words, 2: mostly zeros
  unsigned char *p = room_for(bytes);
  for (size_t i = 0; i < bytes; i++) {
    uint64_t r = random64();
    p[i] = (unsigned char)(kind == 0 ? r : kind == 1 ? (i % 4 == 3 ? 63 : i % 4 ? r : r & 15) : r % 9 ? 0 : r >> 8);
  }
  return p;
}
static unsigned char *copy(const unsigned char *from, size_t bytes) {
  unsigned char *p = room_for(bytes);
  memcpy(p, from, bytes);
  return p;
}
static void fail(const char *what, unsigned family, unsigned long long param) {
  printf("FAILED family %u, parameter %llu: %s\n", family, param, what);
  exit(1);
}
static const size_t SIZES[] = {4, 2, 2, 8, 1};

static uint64_t rounding() {
  const uint64_t kinds[] = {0, HB_STOCHASTIC, HB_STOCHASTIC | HB_CORRELATED};
  return kinds[random64() % 3];
}
static uint64_t codec_parameter(unsigned family, size_t n) {
  uint64_t block = 32ull << random64() % 6;
  switch (family) {
    case HB_ZFP: return 4 + random64() % 29;
    case HB_MPC: return 1 + random64() % 32;
    case HB_INT8:
    case HB_INT4: return block | rounding();
    case HB_GROUPED: {
      uint64_t bits = 2 + random64() % 3;
      return 16ull << random64() % 2 | bits << 16 | rounding() | (random64() % 2 && bits > 2 ? HB_UNEVEN : 0);
    }
    case HB_MX: return random64() % 5 | random64() % 4 << 8;
    case HB_SIGN: return block;
    case HB_TOPK: return n ? random64() % (n + 1) : 0;
    case HB_THRESHOLD: return random64() % 0x7f800000;
    case HB_ROWSPARSE: return 1 + random64() % 200;
    default: return 0;
  }
}

// Adds a rotation of 16 to 1024 values to one third of the codecs that support rotations.
static uint64_t parameter(unsigned family, size_t n) {
  bool turns = (family >= HB_FP8_E4M3 && family <= HB_SIGN) || family >= HB_GROUPED;
  uint64_t rotation = turns && random64() % 3 == 0 ? 4 + random64() % 7 + 16 * (random64() % 2) : 0;
  return codec_parameter(family, n) | rotation << 40;
}

// Runs the flat kernels on arrays that end with their allocation. Every second run of elements has weight decay.
template <class T> static void flat(uint32_t type, uint64_t n) {
  T *arrays[4];
  for (T *&array : arrays) {
    array = (T *)malloc(n * sizeof(T));
    for (uint64_t i = 0; i < n; i++) array[i] = (T)(random64() % 100) / 7;
  }
  uint64_t *ends = (uint64_t *)malloc(3 * sizeof(uint64_t)), from = n / 5;
  ends[0] = n / 3, ends[1] = n / 2, ends[2] = n;
  hb_adamw how = {0.9, 0.5, 0.1, 0.95, 0.05, 2.0, 1e-8, 1e-3, ends};
  BUILD.flat->adamw(type, &how, arrays[0], arrays[1], arrays[2], arrays[3], 0, from);
  BUILD.flat->adamw(type, &how, arrays[0], nullptr, arrays[2], arrays[3], from, n);
  if (!(BUILD.flat->squares(type, arrays[1], n) >= 0)) fail("a sum of squares is negative", type, n);
  for (T *array : arrays) free(array);
  free(ends);
}

int main() {
  for (uint64_t n = 0; n < 200; n++) flat<float>(HB_F32, n), flat<double>(HB_F64, n);
  unsigned long long values = 0, streams = 0, refused = 0;
  bool planted = false;
  while (values < VALUES)
    for (unsigned family = 0; family < HB_FAMILIES; family++) {
      const hb_ops &ops = *BUILD.ops[family];
      bool lossless = family == HB_MPC || family == HB_XPK || family == HB_ROWSPARSE;
      uint32_t type = (uint32_t)(random64() % (family == HB_MPC || family == HB_XPK ? 5 : 3));
      uint32_t out_type = type < 3 && random64() % 2 ? HB_F32 : type;
      size_t n = random64() % (random64() % 4 ? 5000 : 70), bytes = n * SIZES[type], out_bytes = n * SIZES[out_type];
      if (random64() % 400 == 0) n = 65000 + random64() % 2000, bytes = n * SIZES[type], out_bytes = n * SIZES[out_type];
      uint64_t param = parameter(family, n), room = ops.wire_bytes(param, type, n);
      unsigned char *x = filled(bytes, random64() % 3), *wide = filled(room, 0), *out = filled(out_bytes, 1);
      unsigned char *residual = type < 3 && random64() % 2 ? filled(4 * n, 1) : nullptr;

      size_t more = OVERRUN && !planted && family == HB_INT8 && n > 1000 ? 1024 : 0;
      planted = planted || more;
      size_t used = ops.encode(param, type, x, n + more, wide, (float *)residual, random64());
      if (used > room) fail("more bytes than promised", family, param);
      unsigned char *wire = copy(wide, used);
      if (ops.decode(param, type, wire, used, n, out, out_type, 0)) fail("refused its own stream", family, param);
      if (lossless && !residual && type == out_type && memcmp(x, out, bytes)) fail("changed a byte", family, param);
      if (type < 4) ops.decode(param, type, wire, used, n, out, type == HB_F64 ? type : out_type, 1);
      if (type < 3 && ops.decode_add_encode(param, type, wire, used, x, n, wide, 7) > room)
        fail("a sum takes more bytes than promised", family, param);
      streams += 3;

      for (unsigned k = 0; used && k < 4; k++) {  // damaged; every second time near the start, which contains lengths
        size_t at = k & 1 ? random64() % used : random64() % (used < 16 ? used : 16);
        wire[at] ^= (unsigned char)(1u << random64() % 8);
        refused += ops.decode(param, type, wire, used, n, out, out_type, type < 3 && k % 2);
        if (type < 3) refused += ops.decode_add_encode(param, type, wire, used, x, n, wide, 7) == HB_MALFORMED;
        streams += 2;
      }
      release(wire);
      size_t sizes[] = {used, used ? random64() % used : 0, used + 1 + random64() % 9};
      for (size_t size : sizes) {  // random bytes instead of a stream
        wire = filled(size, random64() % 3);
        uint32_t bad = ops.decode(param, type, wire, size, n, out, out_type, 0);
        if (n && size < used && !bad && family != HB_MPC && family != HB_XPK && family != HB_THRESHOLD &&
            family != HB_ROWSPARSE)
          fail("took a stream that is too short", family, param);
        refused += bad;
        release(wire);
        streams++;
      }
      release(x), release(wide), release(out);
      if (residual) release(residual);
      values += 9 * n;
    }
  printf("%llu values, %llu streams, %llu refused, %s\n", values, streams, refused, BUILD.name);
  return 0;
}
