// ZFP: a tile has 256 blocks, whose bits end at a word boundary of the stream for every rate.
#include "tiles.h"

namespace {
#include "../hb_pack.h"
#include "../hb_zfp1.h"

constexpr hb_zfp1_tables make_tables() {
  hb_zfp1_tables t{};
  for (hb_u32 i = 0; i < 80; i++) t.enc[i] = (hb_u16)hb_zfp1_enc_entry(i);
  for (hb_u32 i = 0; i < 256; i++) t.dec[i] = (hb_u16)hb_zfp1_dec_entry(i);
  return t;
}
alignas(64) constexpr hb_zfp1_tables tables = make_tables();

constexpr uint64_t GROUP = 64;  // values in 16 blocks
// Number of groups that are encoded before their bits are moved. With a single group, vector loads of words that were
// just stored one by one would stall.
constexpr int BATCH = 4;
typedef hb_u32 block_words[4][16];

// Number of groups that are processed at the same time, chosen so that they fit into the registers.
constexpr int SIDE = HB_LANES > 4 ? BATCH : HB_LANES > 1 ? 2 : 1;

template <int NW> __attribute__((noinline)) void encode_groups(const float *x, hb_u32 mb, block_words *w) {
  for (int first = 0; first < BATCH; first += SIDE)
    for (int b = 0; b < 16; b += HB_LANES) {
      hb_vf f[SIDE][4];
      hb_v o[SIDE][NW];
      for (int g = 0; g < SIDE; g++) lanes::load_blocks(x + GROUP * (first + g) + 4 * b, f[g]);
      hb_zfp1_encode<hb_v, NW, SIDE>(f, mb, o, tables);
      for (int g = 0; g < SIDE; g++)
        for (int k = 0; k < NW; k++) lanes::store(w[first + g][k] + b, o[g][k]);
    }
}
template <int NW> __attribute__((noinline)) void decode_groups(const block_words *w, hb_u32 mb, float *out) {
  for (int first = 0; first < BATCH; first += SIDE)
    for (int b = 0; b < 16; b += HB_LANES) {
      hb_v in[SIDE][NW];
      hb_vf f[SIDE][4];
      for (int g = 0; g < SIDE; g++)
        for (int k = 0; k < NW; k++) in[g][k] = lanes::load(w[first + g][k] + b);
      hb_zfp1_decode<hb_v, NW, SIDE>(in, mb, f, tables);
      for (int g = 0; g < SIDE; g++) lanes::store_blocks(out + GROUP * (first + g) + 4 * b, f[g]);
    }
}

template <int R> void encode_values(const float *x, byte *wire) {
  constexpr int NW = (R + 7) / 8;
  alignas(64) block_words w[BATCH];
  for (uint64_t g = 0; g < TILE / GROUP; g += BATCH) {
    encode_groups<NW>(x + GROUP * g, 4 * R, w);
    for (int k = 0; k < BATCH; k++) hb_pack16<R>(w[k], wire + 8 * R * (g + k));
  }
}
template <int R> void decode_values(const byte *wire, float *out) {
  constexpr int NW = (R + 7) / 8;
  alignas(64) block_words w[BATCH];
  for (uint64_t g = 0; g < TILE / GROUP; g += BATCH) {
    for (int k = 0; k < BATCH; k++) hb_unpack16<R>(wire + 8 * R * (g + k), w[k]);
    decode_groups<NW>(w, 4 * R, out + GROUP * g);
  }
}

#define HB_RATES(X) \
  X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) \
  X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32)


struct zfp_codec {
  static constexpr int PLANES = 1;
  const uint64_t rate;
  zfp_codec(uint64_t param, uint32_t) : rate(param) {}
  uint64_t bytes(int, uint64_t n) const { return ((n + 3) / 4 * 4 * rate + 63) / 64 * 8; }

  void encode(const float *x, uint64_t n, byte *const *to, noise_source) const {
    alignas(64) float tail[TILE];
    if (n % 4) {  // libzfp's padding of a partial block
      __builtin_memcpy(tail, x, sizeof tail);
      float *last = tail + n / 4 * 4;
      switch (n % 4) {
        case 1: last[1] = last[2] = last[3] = last[0]; break;
        case 2: last[2] = last[1]; last[3] = last[0]; break;
        case 3: last[3] = last[0]; break;
      }
      x = tail;
    }
    switch (rate) {
#define X(R) case R: encode_values<R>(x, to[0]); break;
      HB_RATES(X)
#undef X
    }
  }
  void decode(const byte *const *from, float *out) const {
    switch (rate) {
#define X(R) case R: decode_values<R>(from[0], out); break;
      HB_RATES(X)
#undef X
    }
  }
};
}  // namespace

const hb_ops HB_NAME(hb_ops_zfp) = tiled<zfp_codec>::ops;
