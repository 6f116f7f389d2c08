// Casts, block integers, signs and structured sparsity: codecs that encode single values in blocks.
#include "tiles.h"

namespace {
#include "../hb_2of4.h"
#include "../hb_cast.h"
#include "../hb_quant.h"
#include "../hb_sign.h"

HB_FN hb_v load(const float *x) { return lanes::load((const hb_u32 *)x); }
HB_FN void store(float *x, lanes::F f) { lanes::store((hb_u32 *)x, lanes::as_bits(f)); }

// ------------------------------------------------------------------------------------------------ casts
struct bf16_codec {
  static constexpr int PLANES = 1;
  bf16_codec(uint64_t, uint32_t) {}
  uint64_t bytes(int, uint64_t n) const { return 2 * n; }
  void encode(const float *x, uint64_t, byte *const *to, noise_source) const {
    for (uint64_t i = 0; i < TILE; i += 2 * HB_LANES)
      lanes::store16(to[0] + 2 * i, hb_to_bfloat(load(x + i)), hb_to_bfloat(load(x + i + HB_LANES)));
  }
  void decode(const byte *const *from, float *out) const {
    for (uint64_t i = 0; i < TILE; i += HB_LANES)
      lanes::store((hb_u32 *)out + i, hb_from_bfloat(lanes::load16(from[0] + 2 * i)));
  }
};
template <class T> struct cast_codec {
  static constexpr int PLANES = 2, WIDTH = hb_cast<T>::code_bytes;
  cast_codec(uint64_t, uint32_t) {}
  uint64_t bytes(int plane, uint64_t n) const {
    return plane ? (n + HB_CAST_BLOCK - 1) / HB_CAST_BLOCK : WIDTH * n;
  }
  void encode(const float *x, uint64_t, byte *const *to, noise_source) const {
    for (uint64_t b = 0; b < TILE; b += HB_CAST_BLOCK) {
      hb_v m = lanes::index() * 0u;
      for (uint64_t i = b; i < b + HB_CAST_BLOCK; i += HB_LANES) m = lanes::max(m, hb_finite_magnitude(load(x + i)));
      hb_u32 scale = hb_cast_scale<T>(lanes::top(m));
      to[1][b / HB_CAST_BLOCK] = (byte)scale;
      for (uint64_t i = b; i < b + HB_CAST_BLOCK; i += 2 * HB_LANES) {
        hb_v first = hb_cast_encode<T>(load(x + i), scale), second = hb_cast_encode<T>(load(x + i + HB_LANES), scale);
        if (WIDTH == 2) {
          lanes::store16(to[0] + 2 * i, first, second);
        } else {
          lanes::store8(to[0] + i, first);
          lanes::store8(to[0] + i + HB_LANES, second);
        }
      }
    }
  }
  void decode(const byte *const *from, float *out) const {
    for (uint64_t i = 0; i < TILE; i += HB_LANES) {
      hb_v code = WIDTH == 2 ? lanes::load16(from[0] + 2 * i) : lanes::load8(from[0] + i);
      store(out + i, hb_cast_decode<T>(code, from[1][i / HB_CAST_BLOCK]));
    }
  }
};

// ------------------------------------------------------------------------------------------------ block integers
template <hb_i32 M> struct quant_codec {
  static constexpr int PLANES = 2, BITS = M > 7 ? 8 : 4;
  const uint64_t block;
  const bool stochastic, correlated;
  quant_codec(uint64_t param, uint32_t)
      : block(param & 0xffffffffu), stochastic(param & HB_STOCHASTIC), correlated(param & HB_CORRELATED) {}
  uint64_t bytes(int plane, uint64_t n) const { return plane ? (n + block - 1) / block * 4 : (n * BITS + 7) / 8; }

  void encode(const float *x, uint64_t, byte *const *to, noise_source noise) const {
    alignas(64) byte wide[TILE];
    byte *codes = BITS == 8 ? to[0] : wide;
    const hb_key key = stochastic ? noise.key(correlated) : hb_key{};
    const hb_u32 offset = noise.offset(correlated) << 16;
    for (uint64_t b = 0; b < TILE; b += block) {
      hb_v m = lanes::index() * 0u;
      for (uint64_t i = b; i < b + block; i += HB_LANES) m = lanes::max(m, load(x + i) & HB_MAGNITUDE);
      hb_u32 top = lanes::top(m);
      hb_quant q = hb_quant_of<M>(top);
      __builtin_memcpy(to[1] + 4 * (b / block), &q.scale, 4);
      if (__builtin_expect(top >= HB_INFINITY, 0)) {
        for (uint64_t i = b; i < b + block; i += HB_LANES) lanes::store8(codes + i, hb_quant_special<M>(load(x + i)));
      } else if (stochastic) {
        for (uint64_t i = b; i < b + block; i += HB_LANES)
          lanes::store8(codes + i, hb_quant_stochastic<M>(lanes::as_float(load(x + i)), q, noise.at(key, i) + offset));
      } else {
        for (uint64_t i = b; i < b + block; i += HB_LANES)
          lanes::store8(codes + i, hb_quant_nearest<hb_v>(lanes::as_float(load(x + i)), q));
      }
    }
    if (BITS == 4)
      for (uint64_t i = 0; i < TILE / 2; i++) to[0][i] = (byte)((wide[2 * i] & 15) | wide[2 * i + 1] << 4);
  }
  void decode(const byte *const *from, float *out) const {
    alignas(64) byte wide[TILE];
    if (BITS == 4)
      for (uint64_t i = 0; i < TILE / 2; i++) {
        wide[2 * i] = (byte)((signed char)(from[0][i] << 4) >> 4);
        wide[2 * i + 1] = (byte)((signed char)from[0][i] >> 4);
      }
    const byte *codes = BITS == 8 ? from[0] : wide;
    for (uint64_t b = 0; b < TILE; b += block) {
      float scale;
      __builtin_memcpy(&scale, from[1] + 4 * (b / block), 4);
      if (__builtin_expect(__builtin_isinf(scale), 0)) {
        for (uint64_t i = b; i < b + block; i += HB_LANES)
          store(out + i, hb_quant_decode_special(lanes::load8s(codes + i)));
      } else {
        for (uint64_t i = b; i < b + block; i += HB_LANES) store(out + i, hb_quant_decode(lanes::load8s(codes + i), scale));
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------ signs
struct sign_codec {
  static constexpr int PLANES = 2;
  const uint64_t block;
  sign_codec(uint64_t param, uint32_t) : block(param) {}
  uint64_t bytes(int plane, uint64_t n) const { return plane ? (n + block - 1) / block * 4 : (n + 31) / 32 * 4; }

  void encode(const float *x, uint64_t n, byte *const *to, noise_source) const {
    for (uint64_t w = 0; w < TILE; w += 32) {
      hb_u32 word = 0;
      for (uint64_t i = 0; i < 32; i += HB_LANES) word |= lanes::bits((load(x + w + i) >> 31) != 0u) << i;
      __builtin_memcpy(to[0] + w / 8, &word, 4);
    }
    const int width = block < 128 ? (int)block / 4 : 32;
    alignas(64) float sums[TILE / 4];  // sums of four neighboring values
    for (int i = 0; i < (int)TILE / 4; i += HB_LANES) {
      lanes::F f[4];
      lanes::load_blocks(x + 4 * i, f);
      store(sums + i, hb_sign_sum4<hb_v>(f));
    }
    for (uint64_t b = 0; b < TILE; b += block) {
      float *sum = sums + b / 4;
      for (int i = width; i < (int)block / 4; i += width)
        for (int l = 0; l < width; l++) sum[l] += sum[i + l];
      for (int half = width / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
      uint64_t count = n - b < block ? n - b : block;
      hb_u32 scale = hb_sign_scale(sum[0], (hb_u32)(b < n ? count : block));
      __builtin_memcpy(to[1] + b / block * 4, &scale, 4);
    }
  }
  void decode(const byte *const *from, float *out) const {
    for (uint64_t w = 0; w < TILE; w += 32) {
      hb_u32 word, scale;
      __builtin_memcpy(&word, from[0] + w / 8, 4);
      __builtin_memcpy(&scale, from[1] + w / block * 4, 4);
      for (uint64_t i = 0; i < 32; i += HB_LANES) {
        hb_v zero = lanes::index() * 0u;
        hb_v value = zero + scale, negative = zero + (scale | 0x80000000u);
        lanes::store((hb_u32 *)out + w + i, lanes::mask(word >> i) ? negative : value);
      }
    }
  }
};

// ------------------------------------------------------------------------------------------------ 2:4
struct pick_codec {
  static constexpr int PLANES = 2;
  const uint32_t type;
  pick_codec(uint64_t, uint32_t of) : type(of) {}
  uint64_t bytes(int plane, uint64_t n) const {
    uint64_t groups = (n + 3) / 4;
    return plane ? (groups + 1) / 2 : 2 * groups * size_of(type);
  }
  void encode(const float *x, uint64_t, byte *const *to, noise_source) const {
    alignas(64) hb_u32 kept[TILE / 2], places[TILE / 4];
    for (uint64_t g = 0; g < TILE / 4; g += HB_LANES) {
      lanes::F f[4];
      hb_v bits[4], k[2];
      lanes::load_blocks(x + 4 * g, f);
      for (int i = 0; i < 4; i++) bits[i] = lanes::as_bits(f[i]);
      lanes::store(places + g, hb_2of4_encode(bits, k));
      alignas(64) hb_u32 pair[2][HB_LANES];
      for (int i = 0; i < 2; i++) lanes::store(pair[i], k[i]);
      for (int l = 0; l < HB_LANES; l++) kept[2 * (g + l)] = pair[0][l], kept[2 * (g + l) + 1] = pair[1][l];
    }
    store_values(type, to[0], (const float *)kept, TILE / 2);
    for (uint64_t i = 0; i < TILE / 8; i++) to[1][i] = (byte)(places[2 * i] | places[2 * i + 1] << 4);
  }
  void decode(const byte *const *from, float *out) const {
    alignas(64) float buffer[TILE];
    alignas(64) hb_u32 kept[TILE / 2];
    __builtin_memcpy(kept, load_values(type, from[0], TILE / 2, buffer), sizeof kept);
    for (uint64_t g = 0; g < TILE / 4; g += HB_LANES) {
      alignas(64) hb_u32 pair[2][HB_LANES], places[HB_LANES];
      for (int l = 0; l < HB_LANES; l++) {
        pair[0][l] = kept[2 * (g + l)], pair[1][l] = kept[2 * (g + l) + 1];
        places[l] = from[1][(g + l) / 2] >> ((g + l) % 2 * 4) & 15u;
      }
      hb_v k[2] = {lanes::load(pair[0]), lanes::load(pair[1])}, bits[4];
      lanes::F f[4];
      hb_2of4_decode(k, lanes::load(places), bits);
      for (int i = 0; i < 4; i++) f[i] = lanes::as_float(bits[i]);
      lanes::store_blocks(out + 4 * g, f);
    }
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_bf16) = tiled<bf16_codec>::ops;
const hb_ops HB_NAME(hb_ops_fp16) = tiled<cast_codec<hb_half>>::ops;
const hb_ops HB_NAME(hb_ops_fp8_e4m3) = tiled<cast_codec<hb_e4m3>>::ops;
const hb_ops HB_NAME(hb_ops_fp8_e5m2) = tiled<cast_codec<hb_e5m2>>::ops;
const hb_ops HB_NAME(hb_ops_int8) = tiled<quant_codec<127>>::ops;
const hb_ops HB_NAME(hb_ops_int4) = tiled<quant_codec<7>>::ops;
const hb_ops HB_NAME(hb_ops_sign) = tiled<sign_codec>::ops;
const hb_ops HB_NAME(hb_ops_2of4) = tiled<pick_codec>::ops;
