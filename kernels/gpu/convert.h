// Conversion between values and a shorter wire type. Rounding is to nearest, ties to even. Results for float32 are
// bitwise identical to hb_float.h. A float64 is converted to float16 directly, and to bfloat16 through float32, as in
// NumPy and ml_dtypes. Only the sign of a NaN is kept.
#pragma once
#include "elements.h"
#include "tiles.h"

// The rounding error is added to a residual, unless the error or the residual is not finite.
HB_FN float hb_lacking(float kept, float value, float sent) {
  const float lack = value - sent;
  return (hb_lane<hb_u32>::as_bits(lack) & HB_MAGNITUDE) < HB_INFINITY ? kept + lack : kept;
}

// float32 values that are sent as O
template <int T, int O> struct hb_travel {
  static_assert(T == HB_F32, "values are float32 or float64");
  static constexpr int R = 2;
  typedef hb_tile<R> tile;

  static HB_FN void round(const void *x, hb_u64 n, void *to, float *residual) {
    const hb_values<T, R> values(x), kept(residual);
    const hb_values<O, R> sent(to);
    hb_each_tile<R>(n, 0, [&](const tile &t) {
      float v[R][4], lack[R][4];
      hb_u32 w[R][hb_size_of(O)];
      values.load(t, v);
      if (residual) kept.load(t, lack);
#pragma unroll
      for (int r = 0; r < R; r++) hb_type<O>::template narrow<4>(v[r], w[r]);
      sent.store_words(t, w);
      if (residual) {
#pragma unroll
        for (int r = 0; r < R; r++) {
          float s[4];
          hb_type<O>::template widen<4>(w[r], s);
          for (int i = 0; i < 4; i++) lack[r][i] = hb_lacking(lack[r][i], v[r][i], s[i]);
        }
        kept.store(t, lack);
      }
    });
  }
  template <bool ADD> static HB_FN void widen(const void *from, hb_u64 n, void *x) {
    const hb_values<O, R> sent(from);
    const hb_values<T, R> values(x);
    hb_each_tile<R>(n, 0, [&](const tile &t) {
      float v[R][4], old[R][4];
      sent.load(t, v);
      if (ADD) {
        values.load(t, old);
        hb_add_tile<R>(v, old);
      }
      values.store(t, v);
    });
  }
};

// Returns the bits of a float32 that rounds to a shorter type in the same way as the float64: if there is a remainder,
// the last bit is set.
HB_FN hb_u32 hb_odd_float(hb_u64 bits) {
  const hb_u32 sign = (hb_u32)(bits >> 32) & ~HB_MAGNITUDE;
  const hb_u32 exponent = (hb_u32)(bits >> 52) & 2047u;
  const hb_u64 fraction = bits & ((1ull << 52) - 1u);
  if (exponent == 2047u) return sign | (fraction ? HB_NAN : HB_INFINITY);
  if (exponent > 1150u) return sign | (HB_INFINITY - 1u);
  if (exponent < 897u) return sign | (hb_u32)((bits << 1) != 0u);  // far below the range of float16
  return sign | (exponent - 896u) << 23 | (hb_u32)(fraction >> 29) | (hb_u32)((fraction & ((1u << 29) - 1u)) != 0u);
}
HB_FN double hb_as_double(hb_u64 bits) { return __hiloint2double((int)(bits >> 32), (int)bits); }
HB_FN hb_u64 hb_as_bits(double x) { return (hb_u64)(hb_u32)__double2hiint(x) << 32 | (hb_u32)__double2loint(x); }

// float64 values that are sent as O, one value per thread
template <int O> struct hb_travel<HB_F64, O> {
  static HB_FN hb_u32 narrow(hb_u64 bits) {
    typedef hb_lane<hb_u32> L;
    if constexpr (O == HB_F16) return hb_to_small<hb_half>(hb_odd_float(bits));
    const bool nan = (bits << 1) > 2047ull << 53;
    const hb_u32 single = nan ? hb_odd_float(bits) : L::as_bits((float)hb_as_double(bits));
    return (hb_u32)hb_narrow_raw<O>(L::as_float(single));
  }
  static HB_FN hb_u64 widen(hb_u64 raw) {
    const float v = hb_widen_raw<O>(raw);
    const hb_u64 sign = (hb_u64)(hb_lane<hb_u32>::as_bits(v) >> 31) << 63;
    return v == v ? hb_as_bits((double)v) : sign | 0xfffull << 51;
  }

  static HB_FN void round(const void *x, hb_u64 n, void *to, float *residual) {
    each(n, [&](hb_u64 i) {
      const hb_u64 bits = hb_load_raw<8>((const hb_byte *)x + 8 * i);
      const hb_u32 raw = narrow(bits);
      hb_store_raw<hb_size_of(O)>((hb_byte *)to + hb_size_of(O) * i, raw);
      if (residual) {
        hb_byte *kept = (hb_byte *)residual + 4 * i;
        const double lack = hb_as_double(bits) - hb_as_double(widen(raw));
        if ((hb_as_bits(lack) << 1) < 2047ull << 53)
          hb_store_value<HB_F32>(kept, (float)((double)hb_load_value<HB_F32>(kept) + lack));
      }
    });
  }
  template <bool ADD> static HB_FN void widen(const void *from, hb_u64 n, void *x) {
    each(n, [&](hb_u64 i) {
      const hb_u64 raw = hb_load_raw<hb_size_of(O)>((const hb_byte *)from + hb_size_of(O) * i);
      hb_put_raw<HB_F64, HB_F64, ADD>((hb_byte *)x + 8 * i, widen(raw));
    });
  }
  template <class F> static HB_FN void each(hb_u64 n, F work) {
    const hb_u64 step = (hb_u64)gridDim.x * HB_THREADS;
    for (hb_u64 i = (hb_u64)blockIdx.x * HB_THREADS + threadIdx.x; i < n; i += step) work(i);
  }
};

// Values of type O with a residual. The rounded sum of value and residual is sent, and the residual stores the
// difference.
template <int O> HB_FN void hb_sum_and_lack(const void *x, hb_u64 n, void *to, float *residual) {
  constexpr int R = 2;
  const hb_values<O, R> values(x), sent(to);
  const hb_values<HB_F32, R> kept(residual);
  hb_each_tile<R>(n, 0, [&](const hb_tile<R> &t) {
    float v[R][4], lack[R][4];
    hb_u32 w[R][hb_size_of(O)];
    values.load(t, v);
    kept.load(t, lack);
#pragma unroll
    for (int r = 0; r < R; r++) {
      for (int i = 0; i < 4; i++) {
        const float sum = v[r][i] + lack[r][i];
        v[r][i] = sum == sum ? sum : v[r][i];
      }
      hb_type<O>::template narrow<4>(v[r], w[r]);
      hb_type<O>::template widen<4>(w[r], lack[r]);
      for (int i = 0; i < 4; i++) lack[r][i] = hb_finite_or_0(v[r][i] - lack[r][i]);
    }
    sent.store_words(t, w);
    kept.store(t, lack);
  });
}
