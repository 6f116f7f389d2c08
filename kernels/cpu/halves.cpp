// Flat arrays of 16-bit floats (HB_F16, HB_BF16): conversion from and to float32, and sums, for messages of
// half-precision runs. Rounding is to nearest, ties to even. Every NaN becomes the type's canonical quiet NaN.
#include "values.h"

namespace {
constexpr uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

void narrow(uint32_t type, const float *x, uint64_t n, void *out, float *residual) {
  byte *to = (byte *)out;
  if (!residual) return store_values(type, to, x, n);
  alignas(64) float back[TILE];
  for (uint64_t at = 0; at < n; at += TILE) {
    const uint64_t count = least(TILE, n - at);
    store_values(type, to + 2 * at, x + at, count);
    load_values(type, to + 2 * at, count, back);
    for (uint64_t i = 0; i < count; i++) {
      const float lack = x[at + i] - back[i];
      if (__builtin_fabsf(lack) < __builtin_inff()) residual[at + i] += lack;
    }
  }
}

void widen_all(uint32_t type, const void *x, uint64_t n, float *out, uint32_t add) {
  const byte *from = (const byte *)x;
  if (!add) {
    load_values(type, from, n, out);
    return;
  }
  alignas(64) float values[TILE];
  for (uint64_t at = 0; at < n; at += TILE) {
    const uint64_t count = least(TILE, n - at);
    load_values(type, from + 2 * at, count, values);
    for (uint64_t i = 0; i < count; i++) out[at + i] = hb_add(out[at + i], values[i]);
  }
}

void add(uint32_t type, const void *x, void *onto, uint64_t n) {
  alignas(64) float values[TILE];
  for (uint64_t at = 0; at < n; at += TILE) {
    const uint64_t count = least(TILE, n - at);
    load_values(type, (const byte *)x + 2 * at, count, values);
    put_values(type, (byte *)onto + 2 * at, values, count, true);
  }
}
}  // namespace

const hb_halves HB_NAME(hb_halves) = {narrow, widen_all, add};
