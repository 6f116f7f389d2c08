// Operations of a lossless codec, built from functions for a chunk of 4096 bytes. The codec is a class C:
//   C(param, type)                  the parameter is valid
//   encode(chunk, used, out)        chunk: 4096 bytes, `used` bytes of data, then zeros; out: buffer of ROOM bytes;
//                                   returns the number of 4-byte words written, which may be too many
//   decode(in, words, chunk, used)  in: `words` words, readable for SLACK bytes more; false if they are not a chunk
// Chunks begin at multiples of 4 bytes. Chunks are coded in place if possible, otherwise in a copy. Container: a 16-bit
// word count for each chunk, RAW if the chunk did not shrink; zero padding to a multiple of 4 bytes; then the chunks in
// order. RAW chunks are stored unchanged (the last one only up to its last word with data).
#pragma once
#include "values.h"

namespace {
constexpr uint64_t CHUNK = 4096;
constexpr hb_u16 RAW = 0xffff;
constexpr uint64_t ROOM = 2 * CHUNK, SLACK = 64;
HB_FN bool aligned(const void *p) { return (uintptr_t)p % 4 == 0; }
constexpr uint64_t head_bytes(uint64_t chunks) { return (2 * chunks + 3) / 4 * 4; }

template <class C> struct chunked {
  struct writer {
    byte *lengths, *begin, *next, *end;
    writer(void *wire, uint64_t bytes) {
      uint64_t chunks = (bytes + CHUNK - 1) / CHUNK;
      begin = lengths = (byte *)wire;
      next = begin + head_bytes(chunks);
      end = next + (bytes + 3) / 4 * 4;
      __builtin_memset(lengths + 2 * chunks, 0, head_bytes(chunks) - 2 * chunks);
    }
    void put(const C &c, const byte *chunk, uint64_t used) {
      alignas(64) byte room[ROOM];
      byte *coded = aligned(next) && (uint64_t)(end - next) >= ROOM ? next : room;
      uint64_t raw = (used + 3) / 4, words = c.encode(chunk, used, coded);
      bool shrinks = words < raw;
      hb_u16 length = shrinks ? (hb_u16)words : RAW;
      __builtin_memcpy(lengths, &length, 2);
      lengths += 2;
      if (!shrinks) __builtin_memcpy(next, chunk, 4 * raw);
      else if (coded != next) __builtin_memcpy(next, coded, 4 * words);
      next += 4 * (shrinks ? words : raw);
    }
  };
  struct reader {
    const byte *lengths, *next;
    uint64_t left;
    bool good;
    reader(const void *wire, uint64_t size, uint64_t bytes) {
      uint64_t head = head_bytes((bytes + CHUNK - 1) / CHUNK);
      lengths = (const byte *)wire;
      next = lengths + head;
      good = size >= head;
      left = good ? size - head : 0;
    }
    bool get(const C &c, byte *chunk, uint64_t used) {
      if (!good) return false;
      hb_u16 length;
      __builtin_memcpy(&length, lengths, 2);
      lengths += 2;
      uint64_t raw = (used + 3) / 4, words = length == RAW ? raw : length;
      if (words > raw || left < 4 * words) return good = false;
      if (length == RAW) {
        __builtin_memcpy(chunk, next, 4 * words);
      } else {
        alignas(64) byte coded[CHUNK + SLACK];  // one run from memory: the parts of a chunk are read side by side
        __builtin_memcpy(coded, next, 4 * words);
        __builtin_memset(coded + 4 * words, 0, SLACK);
        good = c.decode(coded, words, chunk, used);
      }
      next += 4 * words;
      left -= 4 * words;
      return good;
    }
  };
  struct buffer {
    alignas(64) byte memory[CHUNK] = {};
    byte *chunk() { return memory; }
    // Writes `count` values of 4 or 2 bytes: the float32 results of f(first value, values, out).
    template <class F> void fill(uint32_t type, uint64_t used, F f) {
      alignas(64) float values[TILE];
      uint64_t n = used / size_of(type);
      __builtin_memset(chunk() + used, 0, CHUNK - used);
      for (uint64_t i = 0; i < n; i += TILE) {
        uint64_t count = n - i < TILE ? n - i : TILE;
        f(i, count, values);
        store_values(type, chunk() + size_of(type) * i, values, count);
      }
    }
  };

  static uint64_t encode(uint64_t param, uint32_t type, const void *x, uint64_t n, void *wire, float *residual,
                         uint64_t) {
    const C c(param, type);
    uint64_t bytes = n * size_of(type);
    writer to(wire, bytes);
    buffer b;
    for (uint64_t at = 0; at < bytes; at += CHUNK) {
      const uint64_t used = bytes - at < CHUNK ? bytes - at : CHUNK;
      const byte *from = (const byte *)x + at;
      if (residual) {
        b.fill(type, used, [&](uint64_t i, uint64_t count, float *values) {
          alignas(64) float own[TILE], sent[TILE];
          byte rounded[4 * TILE];
          float *kept = residual + at / size_of(type) + i;
          add_residual(load_values(type, from + size_of(type) * i, count, own), kept, count, values);
          store_values(type, rounded, values, count);
          keep_residual(values, load_values(type, rounded, count, sent), count, kept);
        });
      } else {
        if (used == CHUNK && aligned(from)) {
          to.put(c, from, used);
          continue;
        }
        __builtin_memset(b.chunk() + used, 0, CHUNK - used);
        __builtin_memcpy(b.chunk(), from, used);
      }
      to.put(c, b.chunk(), used);
    }
    return (uint64_t)(to.next - to.begin);
  }

  static uint32_t decode(uint64_t param, uint32_t type, const void *wire, uint64_t wire_size, uint64_t n, void *out,
                         uint32_t out_type, uint32_t add) {
    const C c(param, type);
    uint64_t bytes = n * size_of(type);
    reader from(wire, wire_size, bytes);
    buffer b;
    for (uint64_t at = 0; at < bytes; at += CHUNK) {
      uint64_t used = bytes - at < CHUNK ? bytes - at : CHUNK;
      byte *to = (byte *)out + at / size_of(type) * size_of(out_type);
      const bool plain = type == out_type && !add, direct = plain && used == CHUNK && aligned(to);
      if (!from.get(c, direct ? to : b.chunk(), used)) return 1;
      if (direct) continue;
      if (plain) {
        __builtin_memcpy(to, b.chunk(), used);
      } else if (type == HB_F64) {
        add_doubles(to, b.chunk(), used / 8);
      } else {
        alignas(64) float values[TILE];
        for (uint64_t i = 0; i < used / size_of(type); i += TILE) {
          uint64_t left = used / size_of(type) - i, count = left < TILE ? left : TILE;
          const float *v = load_values(type, b.chunk() + size_of(type) * i, count, values);
          put_values(out_type, to + size_of(out_type) * i, v, count, add);
        }
      }
    }
    return !from.good || from.left != 0;
  }

  static uint64_t decode_add_encode(uint64_t param, uint32_t type, const void *wire, uint64_t wire_size,
                                    const void *local, uint64_t n, void *out, uint64_t) {
    const C c(param, type);
    uint64_t bytes = n * size_of(type);
    reader from(wire, wire_size, bytes);
    writer to(out, bytes);
    buffer arrived, sum;
    for (uint64_t at = 0; at < bytes; at += CHUNK) {
      uint64_t used = bytes - at < CHUNK ? bytes - at : CHUNK;
      if (!from.get(c, arrived.chunk(), used)) return HB_MALFORMED;
      sum.fill(type, used, [&](uint64_t i, uint64_t count, float *values) {
        alignas(64) float own[TILE], theirs[TILE];
        const float *a = load_values(type, (const byte *)local + at + size_of(type) * i, count, own);
        add_residual(a, load_values(type, arrived.chunk() + size_of(type) * i, count, theirs), count, values);
      });
      to.put(c, sum.chunk(), used);
    }
    return !from.good || from.left ? HB_MALFORMED : (uint64_t)(to.next - to.begin);
  }

  static uint64_t room(uint64_t, uint32_t type, uint64_t n) {
    uint64_t bytes = n * size_of(type);
    return head_bytes((bytes + CHUNK - 1) / CHUNK) + (bytes + 3) / 4 * 4;
  }
  static constexpr hb_ops ops = {room, encode, decode, decode_add_encode};
};
}  // namespace
