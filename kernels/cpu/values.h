// Conversion between values of any type and a tile of float32.
#pragma once
#include "front.h"

namespace {
#include "../hb_float.h"

constexpr uint64_t TILE = 1024;

template <hb_v (*CONVERT)(hb_v)> HB_FN void widen(const byte *from, float *to, uint64_t n) {
  uint64_t i = 0;
  for (; i + HB_LANES <= n; i += HB_LANES) lanes::store((hb_u32 *)to + i, CONVERT(lanes::load16(from + 2 * i)));
  uint64_t left = n % HB_LANES;
  if (!left) return;
  byte in[2 * HB_LANES] = {};
  hb_u32 out[HB_LANES];
  __builtin_memcpy(in, from + 2 * i, 2 * left);
  lanes::store(out, CONVERT(lanes::load16(in)));
  __builtin_memcpy(to + i, out, 4 * left);
}
template <hb_v (*CONVERT)(hb_v)> HB_FN void narrow(const float *from, byte *to, uint64_t n) {
  uint64_t i = 0;
  for (; i + HB_LANES <= n; i += HB_LANES) lanes::store16(to + 2 * i, CONVERT(lanes::load((const hb_u32 *)from + i)));
  uint64_t left = n % HB_LANES;
  if (!left) return;
  hb_u32 in[HB_LANES] = {};
  byte out[2 * HB_LANES];
  __builtin_memcpy(in, from + i, 4 * left);
  lanes::store16(out, CONVERT(lanes::load(in)));
  __builtin_memcpy(to + 2 * i, out, 2 * left);
}

// Reads n <= TILE values of `type` from x; returns `x` itself or `buffer`.
HB_FN const float *load_values(uint32_t type, const byte *x, uint64_t n, float *buffer) {
  switch (type) {
    case HB_F16: widen<hb_from_small<hb_half, hb_v>>(x, buffer, n); return buffer;
    case HB_BF16: widen<hb_from_bfloat<hb_v>>(x, buffer, n); return buffer;
    default: return (const float *)x;
  }
}
typedef float float_at_any_place __attribute__((aligned(1), may_alias));
HB_FN void add_floats(byte *out, const float *values, uint64_t n) {
  float_at_any_place *to = (float_at_any_place *)out;
  const float_at_any_place *from = (const float_at_any_place *)values;
  for (uint64_t i = 0; i < n; i++) to[i] = hb_add(to[i], from[i]);
}
HB_FN void store_values(uint32_t type, byte *out, const float *values, uint64_t n) {
  switch (type) {
    case HB_F16: narrow<hb_to_small<hb_half, hb_v>>(values, out, n); break;
    case HB_BF16: narrow<hb_to_bfloat<hb_v>>(values, out, n); break;
    default: __builtin_memcpy(out, values, 4 * n);
  }
}
// The sign and payload of a NaN sum differ between processors. This function always returns the same NaN.
HB_FN void add_doubles(byte *out, const byte *values, uint64_t n) {
  typedef double double_at_any_place __attribute__((aligned(1), may_alias));
  double_at_any_place *to = (double_at_any_place *)out;
  const double_at_any_place *from = (const double_at_any_place *)values;
  for (uint64_t i = 0; i < n; i++) {
    const double sum = to[i] + from[i];
    to[i] = sum == sum ? sum : __builtin_nan("");
  }
}
// Stores n <= TILE values in out, or adds them to out; sums are computed in float32 and rounded to the type.
HB_FN void put_values(uint32_t type, byte *out, const float *values, uint64_t n, bool add) {
  if (!add) return store_values(type, out, values, n);
  if (type == HB_F32) return add_floats(out, values, n);
  alignas(64) float sum[TILE];
  load_values(type, out, n, sum);
  add_floats((byte *)sum, values, n);
  store_values(type, out, sum, n);
}

// buffer: sums of the values and the residual
HB_FN void add_residual(const float *x, const float *residual, uint64_t n, float *buffer) {
  const float_at_any_place *a = (const float_at_any_place *)x, *b = (const float_at_any_place *)residual;
  for (uint64_t i = 0; i < n; i++) buffer[i] = hb_add(a[i], b[i]);
}
// Returns the unsent part, or 0 if that part is not finite, because an overflow must not remain in the residual.
HB_FN void keep_residual(const float *wanted, const float *sent, uint64_t n, float *residual) {
  const float_at_any_place *all = (const float_at_any_place *)wanted, *part = (const float_at_any_place *)sent;
  float_at_any_place *to = (float_at_any_place *)residual;
  for (uint64_t i = 0; i < n; i++) {
    float lack = all[i] - part[i];
    to[i] = __builtin_fabsf(lack) < __builtin_inff() ? lack : 0.0f;
  }
}
}  // namespace
