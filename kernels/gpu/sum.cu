// Sums of values of one type, compiled for each type except HB_BYTES, with HB_OUT equal to HB_TYPE. Sums of short types
// are computed in float32 and rounded once. The kernels run in any number of blocks of HB_THREADS threads. Pointers
// need no alignment.
#include "../hb_names.h"

#include "elements.h"
#include "tiles.h"

template <int T> HB_FN void hb_sum_values(const void *values, hb_u64 n, void *total) {
  if constexpr (T == HB_F64) {  // one value per thread
    const hb_u64 step = (hb_u64)gridDim.x * HB_THREADS;
    for (hb_u64 i = (hb_u64)blockIdx.x * HB_THREADS + threadIdx.x; i < n; i += step)
      hb_put_raw<T, T, true>((hb_byte *)total + 8 * i, hb_load_raw<8>((const hb_byte *)values + 8 * i));
  } else {
    constexpr int R = 2;
    const hb_values<T, R> terms(values), sums(total);
    hb_each_tile<R>(n, 0, [&](const hb_tile<R> &t) {
      float v[R][4], old[R][4];
      terms.load(t, v);
      sums.load(t, old);
      hb_add_tile<R>(v, old);
      sums.store(t, v);
    });
  }
}

#define HB_KERNEL extern "C" __global__ void __launch_bounds__(HB_THREADS, 4)

HB_KERNEL hb_sum(const void *values, hb_u64 n, void *total) { hb_sum_values<HB_TYPE>(values, n, total); }
