// GPU front end of the codecs, compiled on demand for each family, parameter and type:
//   HB_CODEC, HB_TYPE   numbers of hb_names.h
//   HB_PARAM            parameter of the family, unsigned long long; the upper bits specify a rotation (hb_rotate.h)
//   HB_OUT              type of the decoded values, if it is not HB_TYPE
// The kernels run in any number of blocks of HB_THREADS threads, without contraction of multiplication and addition.
// Pointers need no alignment. Results of fixed-size families are bitwise identical to the CPU front end.
#include "../hb_names.h"

#ifndef HB_OUT
#define HB_OUT HB_TYPE
#endif

#include "block_float.h"
#include "cast.h"
#include "grouped.h"
#include "pick.h"
#include "quant.h"
#include "sign.h"
#include "tiles.h"
#include "zfp.h"

template <int FAMILY, hb_u64 PARAM, int T> struct hb_codec_of;
template <hb_u64 P, int T> struct hb_codec_of<HB_ZFP, P, T> { typedef hb_zfp_codec<(hb_u32)P> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_FP16, P, T> { typedef hb_cast_codec<hb_half> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_BF16_CAST, P, T> { typedef hb_bf16_codec type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_FP8_E4M3, P, T> { typedef hb_cast_codec<hb_e4m3> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_FP8_E5M2, P, T> { typedef hb_cast_codec<hb_e5m2> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_INT8, P, T> { typedef hb_quant_codec<127, P> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_INT4, P, T> { typedef hb_quant_codec<7, P> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_SIGN, P, T> { typedef hb_sign_codec<(hb_u32)P> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_GROUPED, P, T> { typedef hb_grouped_codec<P> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_MX, P, T> { typedef hb_mx_codec<P> type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_NVFP4, P, T> { typedef hb_nvfp4_codec type; };
template <hb_u64 P, int T> struct hb_codec_of<HB_2OF4, P, T> { typedef hb_pick_codec<T> type; };
typedef hb_codec_of<HB_CODEC, (HB_PARAM & HB_CODEC_PARAM), HB_TYPE>::type hb_plain;
typedef hb_tiled<hb_wide_codec<hb_plain, HB_ROTATION(HB_PARAM)>::type, HB_TYPE, HB_PARAM> hb_front;

// Number of blocks that a multiprocessor must hold at once. Fewer suffice for long tiles, because each thread has more
// loads in flight.
constexpr unsigned hb_resident = HB_ROTATION(HB_PARAM) > 9 ? 1 : hb_front::R > (HB_ROTATION(HB_PARAM) ? 2 : 4) ? 2 : 4;
#define HB_KERNEL extern "C" __global__ void __launch_bounds__(HB_THREADS, hb_resident)

// residual: null, or n float32, as for hb_ops
HB_KERNEL hb_encode(const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64 seed) {
  hb_front::encode(x, n, wire, residual, seed);
}
HB_KERNEL hb_decode(const hb_byte *wire, hb_u64 n, void *out) { hb_front::decode<HB_OUT, false>(wire, n, out); }
HB_KERNEL hb_decode_add(const hb_byte *wire, hb_u64 n, void *out) { hb_front::decode<HB_OUT, true>(wire, n, out); }
HB_KERNEL hb_decode_add_encode(const hb_byte *wire, const void *local, hb_u64 n, hb_byte *out, hb_u64 seed) {
  hb_front::decode_add_encode(wire, local, n, out, seed);
}
