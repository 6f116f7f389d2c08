// Operations of a fixed-size codec, built from functions for a tile of 1024 float32. The codec is a class C:
//   C(param, type)                    must not throw; the parameter is valid
//   PLANES                            number of planes on the wire, one after the other
//   bytes(plane, n)                   size of a plane for n values; linear in the number of whole tiles
//   encode(x, n, planes, noise)       x: TILE floats, which are 0 from index n on; planes: where to write each part
//   decode(planes, out)               writes TILE floats
// Planes begin at multiples of 4 bytes, with zeros in between. A short last tile is processed in buffers.
#pragma once
#include "rotate.h"
#include "values.h"

namespace {
// Random words for the values of a tile. `first` is the index of the tile's first value, a multiple of TILE.
struct noise_source {
  uint64_t seed, first;
  // key for all words of the tile, because their counters share the upper half
  hb_key key(bool correlated) const {
    return hb_key_of(correlated ? hb_shared_seed(seed) : seed, (hb_u32)(first >> 32));
  }
  hb_u32 offset(bool correlated) const { return correlated ? hb_noise_offset(seed) : 0u; }
  HB_FN hb_v at(const hb_key &key, uint64_t i) const {
    return hb_random(lanes::index() + (hb_u32)(first + i), key);
  }
};

template <class C> struct tiled {
  static constexpr uint64_t PLANE_BYTES = 4 * TILE + 64;  // maximum bytes of a plane for one tile

  static uint64_t start(const C &c, int plane, uint64_t n) {
    uint64_t at = 0;
    for (int p = 0; p < plane; p++) at += (c.bytes(p, n) + 3) / 4 * 4;
    return at;
  }
  static uint64_t wire_bytes(const C &c, uint64_t n) { return start(c, C::PLANES - 1, n) + c.bytes(C::PLANES - 1, n); }

  // Iterates over tiles, with a position in the wire for each plane, and buffers for the last tile.
  struct cursor {
    const C &c;
    byte *plane[C::PLANES];
    alignas(64) byte tail[C::PLANES][PLANE_BYTES];
    cursor(const C &codec, const void *wire, uint64_t n) : c(codec) {
      for (int p = 0; p < C::PLANES; p++) plane[p] = (byte *)wire + start(c, p, n);
    }
    void encode(const float *x, uint64_t n, noise_source noise) {
      if (n == TILE) {
        c.encode(x, n, plane, noise);
      } else {
        alignas(64) float padded[TILE] = {};
        __builtin_memcpy(padded, x, 4 * n);
        byte *to[C::PLANES];
        for (int p = 0; p < C::PLANES; p++) to[p] = tail[p];
        c.encode(padded, n, to, noise);
        for (int p = 0; p < C::PLANES; p++) {
          uint64_t used = c.bytes(p, n);
          __builtin_memcpy(plane[p], tail[p], used);
          if (p + 1 < C::PLANES) __builtin_memset(plane[p] + used, 0, (0 - used) & 3);
        }
      }
    }
    void decode(uint64_t n, float *out) {
      if (n == TILE) return c.decode(plane, out);
      byte *from[C::PLANES];
      for (int p = 0; p < C::PLANES; p++) {
        __builtin_memset(tail[p], 0, PLANE_BYTES);
        __builtin_memcpy(tail[p], plane[p], c.bytes(p, n));
        from[p] = tail[p];
      }
      c.decode(from, out);
    }
    void advance(uint64_t n) {
      for (int p = 0; p < C::PLANES; p++) plane[p] += c.bytes(p, n);
    }
  };

  static uint64_t encode(uint64_t param, uint32_t type, const void *x, uint64_t n, void *wire, float *residual,
                         uint64_t seed) {
    const C c(param & HB_CODEC_PARAM, type);
    const rotation turn(param);
    cursor to(c, wire, n);
    alignas(64) float values[TILE], sent[TILE], turned[TILE];
    for (uint64_t at = 0; at < n; at += TILE) {
      uint64_t count = n - at < TILE ? n - at : TILE;
      const float *v = load_values(type, (const byte *)x + size_of(type) * at, count, values);
      if (residual) add_residual(v, residual + at, count, values), v = values;
      const float *coded = v;
      if (turn) turn.template apply<false>(v, count, turned), coded = turned;
      to.encode(coded, count, {seed, at});
      if (residual) {
        to.decode(count, sent);
        if (turn) turn.template apply<true>(sent, count, sent);
        keep_residual(v, sent, count, residual + at);
      }
      to.advance(count);
    }
    return wire_bytes(c, n);
  }

  static uint32_t decode(uint64_t param, uint32_t type, const void *wire, uint64_t wire_size, uint64_t n, void *out,
                         uint32_t out_type, uint32_t add) {
    const C c(param & HB_CODEC_PARAM, type);
    const rotation turn(param);
    if (wire_size != wire_bytes(c, n)) return 1;
    cursor from(c, wire, n);
    alignas(64) float values[TILE];
    for (uint64_t at = 0; at < n; at += TILE) {
      uint64_t count = n - at < TILE ? n - at : TILE;
      byte *to = (byte *)out + size_of(out_type) * at;
      if (count == TILE && out_type == HB_F32 && !add) {
        from.decode(count, (float *)to);
        if (turn) turn.template apply<true>((float *)to, count, (float *)to);
      } else {
        from.decode(count, values);
        if (turn) turn.template apply<true>(values, count, values);
        put_values(out_type, to, values, count, add);
      }
      from.advance(count);
    }
    return 0;
  }

  static uint64_t decode_add_encode(uint64_t param, uint32_t type, const void *wire, uint64_t wire_size,
                                    const void *local, uint64_t n, void *out, uint64_t seed) {
    const C c(param & HB_CODEC_PARAM, type);
    const rotation turn(param);
    if (wire_size != wire_bytes(c, n)) return HB_MALFORMED;
    cursor from(c, wire, n), to(c, out, n);
    alignas(64) float values[TILE], buffer[TILE];
    for (uint64_t at = 0; at < n; at += TILE) {
      uint64_t count = n - at < TILE ? n - at : TILE;
      from.decode(count, values);
      if (turn) turn.template apply<true>(values, count, values);
      const float *own = load_values(type, (const byte *)local + size_of(type) * at, count, buffer);
      add_residual(own, values, count, values);
      if (turn) turn.template apply<false>(values, count, values);
      to.encode(values, count, {seed, at});
      from.advance(count), to.advance(count);
    }
    return wire_bytes(c, n);
  }

  static uint64_t room(uint64_t param, uint32_t type, uint64_t n) { return wire_bytes(C(param & HB_CODEC_PARAM, type), n); }
  static constexpr hb_ops ops = {room, encode, decode, decode_add_encode};
};
}  // namespace
