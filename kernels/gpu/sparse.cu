// GPU front end of the sparse codecs, compiled on demand for each family and type (with the macros of gpu.cu, without
// HB_PARAM). Before a call, the host sets `state` to zero: hb_sparse_state (without the bins unless the codec is topk),
// and two words per chunk; decode_add_encode needs n additional float32. An operation consists of several kernels,
// listed in hpcbench/codecs/sequence.py. All these kernels have the arguments of the operation.
#include "../hb_names.h"

#ifndef HB_OUT
#define HB_OUT HB_TYPE
#endif

#include "sparse.h"

typedef hb_sparse<HB_CODEC, HB_TYPE> hb_front;

#define HB_KERNEL extern "C" __global__ void __launch_bounds__(HB_THREADS, 4)
#define HB_ENCODE \
  const void *x, hb_u64 n, hb_byte *wire, float *residual, hb_u64, hb_u64 param, hb_sparse_state *state
#define HB_DECODE const hb_byte *wire, hb_u64 bytes, hb_u64 n, void *out, hb_u64 param, hb_sparse_state *state
#define HB_FUSED                                                                                              \
  const hb_byte *wire, hb_u64 bytes, const void *local, hb_u64 n, hb_byte *out, hb_u64, hb_u64 param, hb_sparse_state *state

// Arguments as for hb_ops; bytes: size of the wire.
HB_KERNEL hb_fold(HB_ENCODE) { hb_front::fold(x, n, residual); }
HB_KERNEL hb_encode(HB_ENCODE) { hb_front::encode(x, n, wire, residual, param, state); }
HB_KERNEL hb_decode(HB_DECODE) { hb_front::decode<HB_OUT, false>(wire, bytes, n, out, param, state); }
HB_KERNEL hb_decode_add(HB_DECODE) { hb_front::decode<HB_OUT, true>(wire, bytes, n, out, param, state); }
// The sum is used as the residual, and the remainder is discarded.
HB_KERNEL hb_sum_decode(HB_FUSED) {
  hb_front::decode<HB_F32, false>(wire, bytes, n, hb_front::sums(n, param, state), param, state);
}
HB_KERNEL hb_sum_fold(HB_FUSED) { hb_front::fold(local, n, hb_front::sums(n, param, state)); }
HB_KERNEL hb_sum_encode(HB_FUSED) {
  hb_front::encode(local, n, out, hb_front::sums(n, param, state), param, state);
}
HB_KERNEL hb_select(HB_ENCODE) { hb_front::select(x, n, residual, param, state); }
HB_KERNEL hb_sum_select(HB_FUSED) { hb_front::select(local, n, hb_front::sums(n, param, state), param, state); }
