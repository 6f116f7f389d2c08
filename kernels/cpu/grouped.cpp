// Integers of 4, 3 or 2 bits with two-level scales.
#include "blocks.h"
#include "bytes.h"
#include "tiles.h"

namespace {
#include "../hb_group.h"

// ------------------------------------------------------------------------------------------------ codec
template <int BITS, bool UNEVEN> struct grouped_tile {
  typedef hb_levels<BITS, UNEVEN> levels;
  static constexpr uint64_t MOST = TILE / 16;  // blocks
  const uint64_t block, blocks = HB_GROUP / block;  // of a group

  // If a group has fewer blocks than a vector has lanes, the next group overwrites the excess values.
  void encode(const float *x, byte *const *to, bool stochastic, bool correlated, noise_source noise) const {
    alignas(64) byte wide[TILE];
    alignas(64) hb_u32 tops[MOST + HB_LANES] = {}, words[TILE / 2];
    alignas(64) float inverse[MOST + HB_LANES];
    byte scales[MOST + HB_LANES];
    for (uint64_t b = 0; b < TILE / block; b += HB_LANES)
      lanes::store(tops + b, block_tops<HB_LANES>(x + b * block, block));
    const hb_u32 offset = noise.offset(correlated), flip = correlated ? 0xffffu : 0u;
    if (stochastic) {
      const hb_key key = noise.key(correlated);
      const hb_u32 first = hb_group_word((hb_u32)noise.first);
      for (uint64_t i = 0; i < TILE / 2; i += HB_LANES)
        lanes::store(words + i, hb_random(lanes::index() + (first + (hb_u32)i), key));
    }
    for (uint64_t g = 0; g < TILE / HB_GROUP; g++) {
      const uint64_t first = g * blocks;
      hb_u32 top = 0;
      for (uint64_t b = first; b < first + blocks; b++) top = tops[b] > top ? tops[b] : top;
      const uint16_t code = (uint16_t)hb_group_code(top);
      __builtin_memcpy(to[2] + 2 * g, &code, 2);
      if (__builtin_expect(code == HB_GROUP_INFINITY, 0)) {
        for (uint64_t b = 0; b < blocks; b++) scales[first + b] = 0;
        for (uint64_t i = g * HB_GROUP; i < (g + 1) * HB_GROUP; i += HB_LANES)
          lanes::store8(wide + i, hb_group_special<levels>(load(x + i)));
        continue;
      }
      const hb_group group = hb_group_of(code);
      const float ratio = code ? 255.0f / group.maximum : 0.0f;
      for (uint64_t b = first; b < first + blocks; b += HB_LANES) {
        hb_v r = hb_group_scale<hb_v>(lanes::as_float(lanes::load(tops + b)), group, ratio);
        lanes::store8(scales + b, r);
        store(inverse + b, hb_group_inverse<hb_v>(hb_group_unit<levels>(r, group)));
      }
      for (uint64_t b = first; b < first + blocks; b++)
        for (uint64_t i = b * block; i < (b + 1) * block; i += HB_LANES) {
          const lanes::F y = lanes::as_float(load(x + i)) * group.before * inverse[b];
          if (stochastic) {
            const hb_v word = lanes::load(words + (i / 32 * 16 + i % 16));
            const hb_v half = i & 16u ? word >> 16 : word & 0xffffu;
            lanes::store8(wide + i, hb_group_stochastic<levels, hb_v>(y, (half + offset) & 0xffffu, flip));
          } else {
            lanes::store8(wide + i, hb_group_nearest<levels, hb_v>(y));
          }
        }
    }
    __builtin_memcpy(to[3], scales, TILE / block);
    if (BITS == 4) return pack4(wide, to[0]);
    pack2(wide, to[0]);
    if (BITS == 3)
      for (uint64_t i = 0; i < TILE; i += BYTES) store_bits(to[1] + i / 8, top_bits(load_bytes(wide + i) << 5));
  }

  void decode(const byte *const *from, float *out) const {
    alignas(64) byte wide[TILE];
    alignas(64) float units[MOST + HB_LANES];
    byte scales[MOST + HB_LANES] = {};
    __builtin_memcpy(scales, from[3], TILE / block);
    if (BITS == 4) unpack4_signed(from[0], wide);
    else unpack2(from[0], wide);
    if (BITS == 3)  // the high bit is the sign
      for (uint64_t i = 0; i < TILE; i += BYTES)
        store_bytes(wide + i, load_bytes(wide + i) | (spread_bits(load_bits(from[1] + i / 8)) & (byte)0xfc));
    if (BITS == 2)
      for (uint64_t i = 0; i < TILE; i++) wide[i] = (byte)((wide[i] ^ 2) - 2);
    for (uint64_t g = 0; g < TILE / HB_GROUP; g++) {
      uint16_t code;
      __builtin_memcpy(&code, from[2] + 2 * g, 2);
      if (__builtin_expect((code & 0x7fff) >= HB_GROUP_INFINITY, 0)) {
        for (uint64_t i = g * HB_GROUP; i < (g + 1) * HB_GROUP; i += HB_LANES)
          store(out + i, hb_group_decode_special(lanes::load8s(wide + i)));
        continue;
      }
      const hb_group group = hb_group_of(code);
      const uint64_t first = g * blocks;
      for (uint64_t b = first; b < first + blocks; b += HB_LANES)
        store(units + b, hb_group_decode_unit<levels>(hb_group_unit<levels>(lanes::load8(scales + b), group), group));
      for (uint64_t b = first; b < first + blocks; b++) {
        const lanes::F unit = lanes::as_float(lanes::index() * 0u) + units[b];
        for (uint64_t i = b * block; i < (b + 1) * block; i += HB_LANES)
          store(out + i, hb_group_decode<levels>(lanes::load8s(wide + i), unit, group));
      }
    }
  }
};

struct grouped_codec {
  static constexpr int PLANES = 4;
  const uint64_t block, bits;
  const bool uneven, stochastic, correlated;
  grouped_codec(uint64_t param, uint32_t)
      : block(param & 0xffffu), bits(param >> 16 & 0xffffu), uneven(param & HB_UNEVEN), stochastic(param & HB_STOCHASTIC),
        correlated(param & HB_CORRELATED) {}
  uint64_t bytes(int plane, uint64_t n) const {
    switch (plane) {
      case 0: return bits == 4 ? (n + 1) / 2 : (n + 3) / 4;
      case 1: return bits == 3 ? (n + 7) / 8 : 0;
      case 2: return (n + HB_GROUP - 1) / HB_GROUP * 2;
      default: return (n + block - 1) / block;
    }
  }
  template <class F> HB_FN void choose(F work) const {
    if (bits == 4) return uneven ? work(grouped_tile<4, true>{block}) : work(grouped_tile<4, false>{block});
    if (bits == 3) return uneven ? work(grouped_tile<3, true>{block}) : work(grouped_tile<3, false>{block});
    work(grouped_tile<2, false>{block});
  }
  void encode(const float *x, uint64_t, byte *const *to, noise_source noise) const {
    choose([&](auto tile) { tile.encode(x, to, stochastic, correlated, noise); });
  }
  void decode(const byte *const *from, float *out) const {
    choose([&](auto tile) { tile.decode(from, out); });
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_grouped) = tiled<grouped_codec>::ops;
