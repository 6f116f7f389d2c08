// GPU front end of the lossless codecs, compiled on demand for each family and type (with the macros of gpu.cu, without
// HB_PARAM). Before a call, the host sets `state` to zero: hb_state, and one word per 8 chunks (two for
// decode_add_encode). After the call, `state` contains the number of wire bytes, or the error.
#include "../hb_names.h"

#ifndef HB_OUT
#define HB_OUT HB_TYPE
#endif

#include "mpc.h"
#include "xpk.h"

template <int FAMILY, int T> struct hb_codec_of;
template <int T> struct hb_codec_of<HB_MPC, T> { typedef hb_mpc_codec<T> type; };
template <int T> struct hb_codec_of<HB_XPK, T> { typedef hb_xpk_codec<T> type; };
typedef hb_chunked<hb_codec_of<HB_CODEC, HB_TYPE>::type, HB_TYPE> hb_front;

#define HB_KERNEL extern "C" __global__ void __launch_bounds__(HB_THREADS, 2)

// Arguments as for hb_ops; bytes: size of the wire.
HB_KERNEL hb_encode(const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64, hb_u64 param, hb_state *state) {
  hb_front::encode(x, n, wire, residual, param, state);
}
HB_KERNEL hb_decode(const hb_byte *wire, hb_u64 bytes, hb_u64 n, void *out, hb_u64 param, hb_state *state) {
  hb_front::decode<HB_OUT, false>(wire, bytes, n, out, param, state);
}
HB_KERNEL hb_decode_add(const hb_byte *wire, hb_u64 bytes, hb_u64 n, void *out, hb_u64 param, hb_state *state) {
  hb_front::decode<HB_OUT, true>(wire, bytes, n, out, param, state);
}
HB_KERNEL hb_decode_add_encode(const hb_byte *wire, hb_u64 bytes, const void *local, hb_u64 n, hb_byte *out, hb_u64,
                               hb_u64 param, hb_state *state) {
  hb_front::decode_add_encode(wire, bytes, local, n, out, param, state);
}
