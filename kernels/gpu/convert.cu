// Conversion of values to and from the type in which they are sent, compiled on demand for each pair:
//   HB_TYPE   type of the values: HB_F32 or HB_F64
//   HB_OUT    type in which they are sent: HB_F16, HB_BF16 or HB_F32
// The kernels run in any number of blocks of HB_THREADS threads. Pointers need no alignment.
#include "../hb_names.h"

#include "convert.h"

typedef hb_travel<HB_TYPE, HB_OUT> hb_front;

#define HB_KERNEL extern "C" __global__ void __launch_bounds__(HB_THREADS, 4)

// residual: null, or n float32 to which the rounding errors are added
HB_KERNEL hb_round(const void *values, hb_u64 n, void *sent, float *residual) {
  hb_front::round(values, n, sent, residual);
}
HB_KERNEL hb_widen(const void *sent, hb_u64 n, void *values) { hb_front::widen<false>(sent, n, values); }
HB_KERNEL hb_widen_add(const void *sent, hb_u64 n, void *values) { hb_front::widen<true>(sent, n, values); }
// values and sent are of type HB_OUT
HB_KERNEL hb_add_residual(const void *values, hb_u64 n, void *sent, float *residual) {
  hb_sum_and_lack<HB_OUT>(values, n, sent, residual);
}
