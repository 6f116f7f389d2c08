// xpk for float32 and the 16-bit types; float64 and bytes are treated as words of 4 bytes.
#include "bytes.h"
#include "chunks.h"

namespace {
#include "../hb_xpk.h"

constexpr uint64_t padded(uint64_t bytes) { return (bytes + 3) / 4 * 4; }
constexpr uint64_t plane_bytes(uint64_t n) { return (n + 31) / 32 * 4; }
constexpr uint64_t whole_words(uint64_t n) { return 8 * plane_bytes(n); }  // n, rounded up to whole words of a plane
constexpr uint64_t ROOM_OF_BYTES = 2048 + 64;  // one byte per value, and a vector that is written or read after them

// One level of the exponent code. The loops are compiled for each width.
struct level {
  const hb_u32 width, base, start;
  uint64_t size(uint64_t n) const { return width * plane_bytes(n); }

  // Writes the codes of the bytes as planes, and the remainders to `rest`. Returns the number of remainders. May write
  // beyond the end of the bytes.
  uint64_t encode(byte *from, uint64_t n, byte *planes, byte *rest) const {
    switch (width) {
      case 1: return encode<1>(from, n, planes, rest);
      case 2: return encode<2>(from, n, planes, rest);
      case 3: return encode<3>(from, n, planes, rest);
      case 4: return encode<4>(from, n, planes, rest);
      case 5: return encode<5>(from, n, planes, rest);
      default: __builtin_memcpy(rest, from, n); return n;
    }
  }
  // Counts the remaining bytes after this level.
  uint64_t left(const byte *planes, uint64_t n) const {
    if (width == 0) return n;
    uint64_t count = 0, stride = plane_bytes(n);
    for (uint64_t i = 0; i < stride; i += 4) {
      hb_u32 all = ~0u, word;
      for (uint64_t b = 0; b < width; b++) {
        __builtin_memcpy(&word, planes + b * stride + i, 4);
        all &= word;
      }
      count += (uint64_t)__builtin_popcount(all);
    }
    return count;
  }
  // Inverse operation, with the given number of bytes in `rest`.
  void decode(const byte *planes, uint64_t n, const byte *rest, byte *to) const {
    switch (width) {
      case 1: return decode<1>(planes, n, rest, to);
      case 2: return decode<2>(planes, n, rest, to);
      case 3: return decode<3>(planes, n, rest, to);
      case 4: return decode<4>(planes, n, rest, to);
      case 5: return decode<5>(planes, n, rest, to);
      default: __builtin_memcpy(to, rest, n);
    }
  }

 private:
  template <int K> uint64_t encode(byte *from, uint64_t n, byte *planes, byte *rest) const {
    const byte most = (1 << K) - 1, first = (byte)start, low = (byte)base;
    __builtin_memset(from + n, (byte)(low + first), 32);  // code 0
    byte *next = rest;
    for (uint64_t i = 0; i < whole_words(n); i += BYTES) {
      bytes x = load_bytes(from + i) - low, code = x - first;
      code = code < most ? code : most + bytes{};
      put_planes(code, K, planes + i / 8, plane_bytes(n));
      next += compress_bytes(x < first ? x : x - most, top_bits((bytes)(code == most)), next);
    }
    return (uint64_t)(next - rest);
  }
  template <int K> void decode(const byte *planes, uint64_t n, const byte *rest, byte *to) const {
    const byte most = (1 << K) - 1, first = (byte)start, low = (byte)base;
    for (uint64_t i = 0; i < whole_words(n); i += BYTES) {
      bytes code = get_planes(K, planes + i / 8, plane_bytes(n));
      byte_bits live = top_bits((bytes)(code == most));
      bytes x = expand_bytes(live, rest);
      rest += __builtin_popcount(live);
      x = x < first ? x : x + most;
      store_bytes(to + i, (code == most ? x : code + first) + low);
    }
  }
};

// Runs of a sample are counted in separate tables. Because only a few exponents occur, increments in a single table
// would depend on each other.
HB_FN hb_xpk_plan choose(const byte *exponents, uint64_t n) {
  hb_u16 counts[HB_XPK_MARGIN + 256 + HB_XPK_MARGIN] = {};
  if (n <= HB_XPK_SAMPLE) {
    for (uint64_t i = 0; i < n; i++) counts[HB_XPK_MARGIN + exponents[i]]++;
    return hb_xpk_choose(counts, (hb_u32)n);
  }
  constexpr hb_u32 RUNS = HB_XPK_SAMPLE / 32, TABLES = 4;
  byte tables[TABLES][256] = {};
  const byte *runs[RUNS];
  for (hb_u32 r = 0; r < RUNS; r++) runs[r] = exponents + hb_xpk_run((hb_u32)n, r);
  for (int i = 0; i < 32; i++)
    for (hb_u32 r = 0; r < RUNS; r++) tables[r % TABLES][runs[r][i]]++;
  for (int e = 0; e < 256; e++)
    counts[HB_XPK_MARGIN + e] = (hb_u16)(tables[0][e] + tables[1][e] + tables[2][e] + tables[3][e]);
  return hb_xpk_choose(counts, HB_XPK_SAMPLE);
}

HB_FN hb_v load_values_of(const hb_u32 *x) { return lanes::load(x); }
HB_FN hb_v load_values_of(const hb_u16 *x) { return lanes::load16((const byte *)x); }
HB_FN void store_values_of(hb_u32 *x, hb_v v) { lanes::store(x, v); }
HB_FN void store_values_of(hb_u16 *x, hb_v v) { lanes::store16((byte *)x, v); }

// Chunks of values of type T with E exponent bits.
template <class T, int E> struct packer {
  static constexpr int W = 8 * sizeof(T), PLANES = (W - E) % 8;  // bits beyond whole bytes
  static constexpr uint64_t VALUES = CHUNK / sizeof(T);

  // parts of the noise (signs and mantissas)
  static uint64_t low_bytes(uint64_t n) { return W == 32 ? padded(2 * n) : 0; }
  static uint64_t noise_bytes(uint64_t n) { return low_bytes(n) + padded(n) + PLANES * plane_bytes(n); }

  static void split(const T *__restrict x, uint64_t n, byte *__restrict noise, byte *__restrict exponents) {
    byte *__restrict middle = noise + low_bytes(n);
    if (n % 4) {
      __builtin_memset(middle + padded(n) - 4, 0, 4);
      if (W == 32) __builtin_memset(middle - 4, 0, 4);
    }
    if constexpr (W == 32) {
      hb_u16 *__restrict low = (hb_u16 *)noise;
      for (uint64_t i = 0; i < n; i++) low[i] = (hb_u16)hb_xpk_turn<W>(x[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
      T y = (T)hb_xpk_turn<W>(x[i]);
      middle[i] = (byte)(y >> (W - 16));
      exponents[i] = (byte)(y >> (W - 8));
    }
    if constexpr (PLANES != 0) {
      __builtin_memset(exponents + n, 0, 32);
      for (uint64_t i = 0; i < whole_words(n); i += BYTES) {
        bytes y = load_bytes(exponents + i);
        put_planes(y, PLANES, middle + padded(n) + i / 8, plane_bytes(n));
        store_bytes(exponents + i, y >> PLANES);
      }
    }
  }
  static void merge(const byte *__restrict noise, byte *__restrict exponents, uint64_t n, T *__restrict x) {
    const byte *__restrict middle = noise + low_bytes(n);
    if constexpr (PLANES != 0) {
      for (uint64_t i = 0; i < whole_words(n); i += BYTES) {
        bytes low = get_planes(PLANES, middle + padded(n) + i / 8, plane_bytes(n));
        store_bytes(exponents + i, load_bytes(exponents + i) << PLANES | low);
      }
    }
    const hb_u16 *__restrict low = (const hb_u16 *)noise;
    for (uint64_t i = 0; i < n; i++) {
      T y = (T)((T)(exponents[i] << 8 | middle[i]) << (W - 16));
      if constexpr (W == 32) y |= low[i];
      x[i] = (T)hb_xpk_back<W>(y);
    }
  }

  template <class V> static bool is_sparse(const V *x, uint64_t n) {
    hb_u32 zeros = 0;
    for (uint64_t i = 0; i < n; i += 128) {
      V some = 0;
      for (uint64_t k = i; k < i + 128 && k < n; k++) some = (V)(some + (x[k] == 0));
      zeros += some;
    }
    return hb_xpk_is_sparse((hb_u32)n, zeros);
  }
  // Copies the nonzero values, marks them in the bitmap, and returns their number.
  static uint64_t gather(const T *x, uint64_t n, byte *bitmap, T *packed) {
    hb_u32 found[VALUES + HB_LANES], *next = found;
    for (uint64_t g = 0; g < n; g += 32) {
      hb_u32 bits = 0;
      for (uint64_t i = 0; i < 32; i += HB_LANES) {
        hb_u32 mask = lanes::compress(load_values_of(x + g + i), next);
        next += __builtin_popcount(mask);
        bits |= mask << i;
      }
      __builtin_memcpy(bitmap + g / 8, &bits, 4);
    }
    const uint64_t count = (uint64_t)(next - found);
    for (uint64_t i = 0; i < count; i++) packed[i] = (T)found[i];
    return count;
  }
  static void scatter(const T *packed, uint64_t count, const byte *bitmap, T *x, uint64_t n) {
    hb_u32 wide[VALUES + HB_LANES], *next = wide;
    for (uint64_t i = 0; i < count; i++) wide[i] = packed[i];
    for (uint64_t g = 0; g < n; g += 32) {
      hb_u32 bits;
      __builtin_memcpy(&bits, bitmap + g / 8, 4);
      for (uint64_t i = 0; i < 32; i += HB_LANES) {
        hb_u32 mask = bits >> i & (0xffffffffu >> (32 - HB_LANES));
        store_values_of(x + g + i, lanes::expand(mask, next));
        next += __builtin_popcount(mask);
      }
    }
  }

  static uint64_t encode(const T *x, uint64_t n, byte *out) {
    alignas(64) byte exponents[ROOM_OF_BYTES], rest[ROOM_OF_BYTES];
    T packed[VALUES];
    byte *next = out + 4;
    split(x, n, next, exponents);
    // zeros are counted only if this many exponents are 0
    const bool sparse = is_sparse(exponents, n) && is_sparse(x, n);
    if (sparse) {
      byte *bitmap = next;
      next += plane_bytes(n);
      n = gather(x, n, bitmap, packed);
      split(packed, n, next, exponents);
    }
    next += noise_bytes(n);
    const hb_xpk_plan plan = choose(exponents, n);
    const level hot = {plan.hot, plan.base, plan.start}, rare = {plan.rare, 0, 0};
    const uint64_t left = hot.encode(exponents, n, next, rest);
    next += hot.size(n);
    const uint64_t last = rare.encode(rest, left, next, exponents);
    next += rare.size(left);
    __builtin_memcpy(next, exponents, last);
    __builtin_memset(next + last, 0, 4);
    out[0] = (byte)plan.base;
    out[1] = (byte)plan.start;
    out[2] = (byte)(plan.hot | plan.rare << 4 | (sparse ? HB_XPK_SPARSE : 0u));
    out[3] = 0;
    return ((uint64_t)(next - out) + last + 3) / 4;
  }

  static bool decode(const byte *in, uint64_t words, T *x, uint64_t n) {
    if (words == 0) return false;
    const bool sparse = in[2] & HB_XPK_SPARSE;
    const level hot = {in[2] & 15u, in[0], in[1]}, rare = {in[2] >> 4 & 7u, 0, 0};
    if (hot.width < 1 || hot.width > 5 || rare.width > 4 || hot.start > 15 || in[3]) return false;
    const byte *bitmap = in + 4, *noise = bitmap, *const end = in + 4 * words;
    uint64_t count = n;
    if (sparse) {
      noise += plane_bytes(n);
      if (noise > end) return false;
      count = (level{1, 0, 0}).left(bitmap, n);
      if (count > n) return false;
    }
    const byte *planes = noise + noise_bytes(count), *rare_planes = planes + hot.size(count);
    if (rare_planes > end) return false;
    const uint64_t left = hot.left(planes, count);
    const byte *last = rare_planes + rare.size(left);
    if (last > end || last + padded(rare.left(rare_planes, left)) != end) return false;

    alignas(64) byte exponents[ROOM_OF_BYTES], rest[ROOM_OF_BYTES];
    T packed[VALUES];
    rare.decode(rare_planes, left, last, rest);
    hot.decode(planes, count, rest, exponents);
    merge(noise, exponents, count, sparse ? packed : x);
    if (sparse) scatter(packed, count, bitmap, x, n);
    return true;
  }
};

typedef packer<hb_u32, 8> words_packer;
typedef packer<hb_u16, 8> bf16_packer;
typedef packer<hb_u16, 5> f16_packer;

struct xpk_codec {
  const uint32_t type;
  xpk_codec(uint64_t, uint32_t type) : type(type) {}
  uint64_t encode(const byte *chunk, uint64_t used, byte *out) const {
    switch (type) {
      case HB_F16: return f16_packer::encode((const hb_u16 *)chunk, used / 2, out);
      case HB_BF16: return bf16_packer::encode((const hb_u16 *)chunk, used / 2, out);
      default: return words_packer::encode((const hb_u32 *)chunk, (used + 3) / 4, out);
    }
  }
  bool decode(const byte *in, uint64_t words, byte *chunk, uint64_t used) const {
    switch (type) {
      case HB_F16: return f16_packer::decode(in, words, (hb_u16 *)chunk, used / 2);
      case HB_BF16: return bf16_packer::decode(in, words, (hb_u16 *)chunk, used / 2);
      default: return words_packer::decode(in, words, (hb_u32 *)chunk, (used + 3) / 4);
    }
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_xpk) = chunked<xpk_codec>::ops;
