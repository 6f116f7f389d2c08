// Rotations of the values of a tile.
#pragma once
#include "values.h"

namespace {
#include "../hb_rotate.h"

class rotation {
 public:
  rotation(uint64_t param) : log_(HB_ROTATION(param)) {
    if (!log_) return;
    for (uint64_t i = 0; i < TILE; i += HB_LANES) {
      const hb_u32 word = HB_ROTATION_SIGNS(param) ? hb_rotation_signs((hb_u32)(i / 32)) : 0u;
      const hb_v zero = lanes::index() * 0u;
      lanes::store(flips_ + i, lanes::mask(word >> i % 32) ? zero + 0x80000000u : zero);
    }
  }
  explicit operator bool() const { return log_ != 0; }
  // n <= TILE values; x may be `out`
  template <bool INVERSE> void apply(const float *x, uint64_t n, float *out) const {
    const uint64_t whole = n >> log_ << log_;
    switch (log_) {
      case 4: blocks<4, INVERSE>(x, whole, out); break;
      case 5: blocks<5, INVERSE>(x, whole, out); break;
      case 6: blocks<6, INVERSE>(x, whole, out); break;
      case 7: blocks<7, INVERSE>(x, whole, out); break;
      case 8: blocks<8, INVERSE>(x, whole, out); break;
      case 9: blocks<9, INVERSE>(x, whole, out); break;
      default: blocks<10, INVERSE>(x, whole, out);
    }
    if (x != out) __builtin_memcpy(out + whole, x + whole, 4 * (n - whole));
  }

 private:
  int log_;
  alignas(64) hb_u32 flips_[TILE];

  // one step within each vector: lane l with bit S becomes the difference of lanes l ^ S and l
  template <int S, int V, class L = lanes> static HB_FN void steps(typename L::F *v) {
    if constexpr (S < HB_LANES) {
      const hb_v minus = (L::index() & (hb_u32)S) != 0u ? L::index() * 0u + 0x80000000u : L::index() * 0u;
      for (int k = 0; k < V; k++) {
        const hb_v bits = L::as_bits(v[k]);
        v[k] = L::as_float(L::template swap<S>(bits)) + L::as_float(bits ^ minus);
      }
      steps<2 * S, V>(v);
    }
  }
  template <int K, bool INVERSE> void blocks(const float *x, uint64_t n, float *out) const {
    constexpr int V = (1 << K) / HB_LANES;
    for (uint64_t at = 0; at < n; at += 1 << K) {
      lanes::F v[V];
      for (int k = 0; k < V; k++) {
        hb_v bits = lanes::load((const hb_u32 *)x + at + k * HB_LANES);
        if (!INVERSE) bits = bits ^ lanes::load(flips_ + at + k * HB_LANES);
        v[k] = lanes::as_float(bits) * hb_rotation_factor<K>();
      }
      steps<1, V>(v);
      for (int step = 1; step < V; step *= 2)
        for (int k = 0; k < V; k++)
          if (!(k & step)) {
            const lanes::F a = v[k], b = v[k + step];
            v[k] = a + b, v[k + step] = a - b;
          }
      for (int k = 0; k < V; k++) {
        hb_v bits = lanes::as_bits(v[k]);
        if (INVERSE) bits = bits ^ lanes::load(flips_ + at + k * HB_LANES);
        lanes::store((hb_u32 *)out + at + k * HB_LANES, hb_rotated(bits));
      }
    }
  }
};
}  // namespace
