// Conversion of N values of a type, stored in words, to float32 and back.
#pragma once
#include "../hb_float.h"
#include "../hb_names.h"

template <int T> struct hb_type;
template <> struct hb_type<HB_F32> {
  static constexpr int SIZE = 4;
  template <int N> static HB_FN void widen(const hb_u32 *w, float *v) {
    for (int i = 0; i < N; i++) v[i] = hb_lane<hb_u32>::as_float(w[i]);
  }
  template <int N> static HB_FN void narrow(const float *v, hb_u32 *w) {
    for (int i = 0; i < N; i++) w[i] = hb_lane<hb_u32>::as_bits(v[i]);
  }
};
template <hb_u32 (*TO)(hb_u32), hb_u32 (*FROM)(hb_u32)> struct hb_short {
  static constexpr int SIZE = 2;
  template <int N> static HB_FN void widen(const hb_u32 *w, float *v) {
    for (int i = 0; i < N; i++) v[i] = hb_lane<hb_u32>::as_float(FROM(w[i / 2] >> (16 * (i % 2)) & 0xffffu));
  }
  template <int N> static HB_FN void narrow(const float *v, hb_u32 *w) {
    for (int i = 0; i < N / 2; i++)
      w[i] = TO(hb_lane<hb_u32>::as_bits(v[2 * i])) | TO(hb_lane<hb_u32>::as_bits(v[2 * i + 1])) << 16;
  }
};
template <> struct hb_type<HB_F16> : hb_short<hb_to_small<hb_half, hb_u32>, hb_from_small<hb_half, hb_u32>> {};
template <> struct hb_type<HB_BF16> : hb_short<hb_to_bfloat<hb_u32>, hb_from_bfloat<hb_u32>> {};

// Value to store in a residual. An overflow must not remain in the residual.
HB_FN float hb_finite_or_0(float lack) {
  return (hb_lane<hb_u32>::as_bits(lack) & HB_MAGNITUDE) < HB_INFINITY ? lack : 0.0f;
}
