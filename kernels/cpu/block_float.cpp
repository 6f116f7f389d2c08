// Block floats: MX formats and NVFP4.
#include "blocks.h"
#include "tiles.h"

namespace {
#include "../hb_block_float.h"

template <class E> HB_FN void encode_block(const float *x, uint64_t block, lanes::F factor, byte *codes) {
  for (uint64_t i = 0; i < block; i += HB_LANES) lanes::store8(codes + i, hb_element_encode<E>(load(x + i), factor));
}
HB_FN void store_nan(float *out, uint64_t count) {
  const hb_v nan = lanes::index() * 0u + HB_NAN;
  for (uint64_t i = 0; i < count; i += HB_LANES) store(out + i, lanes::as_float(nan));
}
HB_FN lanes::F all(float x) { return lanes::as_float(lanes::index() * 0u) + x; }

// ------------------------------------------------------------------------------------------------ MX
template <class E> struct mx_tile {
  static constexpr uint64_t BLOCKS = TILE / HB_MX_BLOCK;

  template <int RULE> void encode(const float *x, byte *const *to) const {
    alignas(64) byte wide[TILE];
    alignas(64) float factors[BLOCKS];
    byte *codes = E::bits == 8 ? to[0] : wide, *scales = to[2];
    for (uint64_t b = 0; b < BLOCKS; b += HB_LANES) {
      const hb_v scale = hb_mx_scale<E, RULE>(block_tops<HB_LANES>(x + b * HB_MX_BLOCK, HB_MX_BLOCK));
      lanes::store8(scales + b, scale);
      store(factors + b, hb_mx_factor(scale));
    }
    for (uint64_t b = 0; b < BLOCKS; b++) {
      byte *block = codes + b * HB_MX_BLOCK;
      if (__builtin_expect(scales[b] == HB_MX_NAN, 0)) __builtin_memset(block, 0, HB_MX_BLOCK);
      else encode_block<E>(x + b * HB_MX_BLOCK, HB_MX_BLOCK, all(factors[b]), block);
    }
    if (E::bits == 8) return;
    pack4(wide, to[0]);
    if (E::bits == 4) return;
    for (byte &code : wide) code >>= 4;
    pack2(wide, to[1]);
  }

  void decode(const byte *const *from, float *out) const {
    alignas(64) byte wide[TILE], high[TILE];
    if (E::bits < 8) unpack4(from[0], wide);
    if (E::bits == 6) {
      unpack2(from[1], high);
      for (uint64_t i = 0; i < TILE; i++) wide[i] = (byte)(wide[i] | high[i] << 4);
    }
    const byte *codes = E::bits == 8 ? from[0] : wide;
    for (uint64_t at = 0; at < TILE; at += HB_MX_BLOCK) {
      const hb_u32 scale = from[2][at / HB_MX_BLOCK];
      if (__builtin_expect(scale == HB_MX_NAN, 0)) {
        store_nan(out + at, HB_MX_BLOCK);
        continue;
      }
      const lanes::F unit = all(hb_mx_unit(scale));
      for (uint64_t i = at; i < at + HB_MX_BLOCK; i += HB_LANES)
        store(out + i, hb_mx_decode<E>(lanes::load8(codes + i), unit));
    }
  }
};

struct mx_codec {
  static constexpr int PLANES = 3;
  const uint64_t element, rule;
  mx_codec(uint64_t param, uint32_t) : element(param & 255u), rule(param >> 8 & 255u) {}
  uint64_t bytes(int plane, uint64_t n) const {
    const bool eight = element == HB_E4M3 || element == HB_E5M2;
    switch (plane) {
      case 0: return eight ? n : (n + 1) / 2;
      case 1: return eight || element == HB_E2M1 ? 0 : (n + 3) / 4;
      default: return (n + HB_MX_BLOCK - 1) / HB_MX_BLOCK;
    }
  }
  template <class F> HB_FN void choose(F work) const {
    switch (element) {
      case HB_E2M1: return work(mx_tile<hb_mx_element<HB_E2M1>::type>());
      case HB_E2M3: return work(mx_tile<hb_mx_element<HB_E2M3>::type>());
      case HB_E3M2: return work(mx_tile<hb_mx_element<HB_E3M2>::type>());
      case HB_E4M3: return work(mx_tile<hb_mx_element<HB_E4M3>::type>());
      default: return work(mx_tile<hb_mx_element<HB_E5M2>::type>());
    }
  }
  void encode(const float *x, uint64_t, byte *const *to, noise_source) const {
    choose([&](auto tile) {
      switch (rule) {
        case HB_FLOOR: return tile.template encode<HB_FLOOR>(x, to);
        case HB_CEIL: return tile.template encode<HB_CEIL>(x, to);
        case HB_EVEN: return tile.template encode<HB_EVEN>(x, to);
        default: return tile.template encode<HB_RCEIL>(x, to);
      }
    });
  }
  void decode(const byte *const *from, float *out) const {
    choose([&](auto tile) { tile.decode(from, out); });
  }
};

// ------------------------------------------------------------------------------------------------ NVFP4
struct nvfp4_codec {
  static_assert(TILE == HB_NVFP4_PIECE, "a tile has one maximum");
  static constexpr int PLANES = 3;
  static constexpr uint64_t BLOCKS = TILE / HB_NVFP4_BLOCK;
  nvfp4_codec(uint64_t, uint32_t) {}
  uint64_t bytes(int plane, uint64_t n) const {
    switch (plane) {
      case 0: return (n + 1) / 2;
      case 1: return (n + HB_NVFP4_PIECE - 1) / HB_NVFP4_PIECE * 4;
      default: return (n + HB_NVFP4_BLOCK - 1) / HB_NVFP4_BLOCK;
    }
  }
  void encode(const float *x, uint64_t, byte *const *to, noise_source) const {
    alignas(64) byte wide[TILE];
    alignas(64) hb_u32 tops[BLOCKS];
    alignas(64) float inverse[BLOCKS];
    hb_v most = lanes::index() * 0u;
    for (uint64_t b = 0; b < BLOCKS; b += HB_LANES) {
      const hb_v top = block_tops<HB_LANES>(x + b * HB_NVFP4_BLOCK, HB_NVFP4_BLOCK);
      lanes::store(tops + b, top);
      most = lanes::max(most, top < HB_INFINITY ? top : top * 0u);
    }
    const hb_u32 a = lanes::top(most);
    __builtin_memcpy(to[1], &a, 4);
    const hb_nvfp4 piece = hb_nvfp4_of(a);
    byte *scales = to[2];
    for (uint64_t b = 0; b < BLOCKS; b += HB_LANES) {
      const hb_v scale = hb_nvfp4_scale(lanes::load(tops + b), piece);
      lanes::store8(scales + b, scale);
      store(inverse + b, hb_nvfp4_inverse<hb_v>(hb_nvfp4_unit(scale, piece)));
    }
    alignas(64) float larger[HB_NVFP4_BLOCK];
    for (uint64_t b = 0; b < BLOCKS; b++) {
      const float *values = x + b * HB_NVFP4_BLOCK;
      byte *block = wide + b * HB_NVFP4_BLOCK;
      if (__builtin_expect(scales[b] == HB_NVFP4_NAN, 0)) {
        __builtin_memset(block, 0, HB_NVFP4_BLOCK);
        continue;
      }
      if (__builtin_expect(piece.before != 1.0f, 0)) {
        for (uint64_t i = 0; i < HB_NVFP4_BLOCK; i++) larger[i] = values[i] * piece.before;
        values = larger;
      }
      encode_block<hb_e2m1_element>(values, HB_NVFP4_BLOCK, all(inverse[b]), block);
    }
    pack4(wide, to[0]);
  }
  void decode(const byte *const *from, float *out) const {
    alignas(64) byte wide[TILE];
    alignas(64) float units[BLOCKS];
    hb_u32 a;
    __builtin_memcpy(&a, from[1], 4);
    if (__builtin_expect((a & HB_MAGNITUDE) >= HB_INFINITY, 0)) return store_nan(out, TILE);
    const hb_nvfp4 piece = hb_nvfp4_of(a & HB_MAGNITUDE);
    unpack4(from[0], wide);
    for (uint64_t b = 0; b < BLOCKS; b += HB_LANES)
      store(units + b, hb_nvfp4_unit(lanes::load8(from[2] + b), piece));
    for (uint64_t b = 0; b < BLOCKS; b++) {
      const uint64_t at = b * HB_NVFP4_BLOCK;
      if (__builtin_expect((from[2][b] & 0x7fu) == HB_NVFP4_NAN, 0)) {
        store_nan(out + at, HB_NVFP4_BLOCK);
        continue;
      }
      for (uint64_t i = at; i < at + HB_NVFP4_BLOCK; i += HB_LANES)
        store(out + i, hb_nvfp4_decode(lanes::load8(wide + i), all(units[b]), piece));
    }
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_mx) = tiled<mx_codec>::ops;
const hb_ops HB_NAME(hb_ops_nvfp4) = tiled<nvfp4_codec>::ops;
