// Optimizer loops over flat arrays of float32 or float64: a step of AdamW, and the sum of squares for a norm.
// Contractions are disabled and sums have a fixed order, so results of all builds are bitwise identical. AdamW results
// do not depend on an element's position in an array.
#include "front.h"

namespace {
HB_FN float root_of(float x) { return __builtin_sqrtf(x); }
HB_FN double root_of(double x) { return __builtin_sqrt(x); }

template <class T, bool GRADIENT>
void adamw_run(const hb_adamw &how, T keep, T *__restrict master, const T *__restrict gradient, T *__restrict first,
               T *__restrict second, uint64_t n) {
  const T factor = (T)how.factor, take1 = (T)how.take1, keep2 = (T)how.keep2, take2 = (T)how.take2;
  const T grown = (T)how.grown, eps = (T)how.eps, size = (T)how.size;
  for (uint64_t i = 0; i < n; i++) {
    T m = first[i], v = second[i];
    if (GRADIENT) {
      const T g = gradient[i] * factor;
      first[i] = m = m + take1 * (g - m);
      second[i] = v = keep2 * v + take2 * (g * g);
    }
    master[i] = keep * master[i] - size * m / (grown * root_of(v) + eps);
  }
}
template <class T>
void adamw_of(const hb_adamw &how, T *master, const T *gradient, T *first, T *second, uint64_t from, uint64_t to) {
  const uint64_t *end = how.ends;
  for (uint64_t at = from, k = 0; at < to; k++) {
    if (end[k] <= at) continue;
    const uint64_t n = (end[k] < to ? end[k] : to) - at;
    const T keep = k % 2 ? (T)how.keep : (T)1;
    if (gradient)
      adamw_run<T, true>(how, keep, master + at, gradient + at, first + at, second + at, n);
    else
      adamw_run<T, false>(how, keep, master + at, nullptr, first + at, second + at, n);
    at += n;
  }
}

constexpr int SUMS = 32;  // partial sums, which hide the latency of additions and can be vectorized
template <class T> double squares_of(const T *x, uint64_t n) {
  double sums[SUMS] = {};
  uint64_t i = 0;
  for (; i + SUMS <= n; i += SUMS)
    for (int k = 0; k < SUMS; k++) sums[k] += (double)x[i + k] * (double)x[i + k];
  for (int k = 0; i < n; i++, k++) sums[k] += (double)x[i] * (double)x[i];
  for (int width = SUMS / 2; width; width /= 2)
    for (int k = 0; k < width; k++) sums[k] += sums[k + width];
  return sums[0];
}

void adamw(uint32_t type, const hb_adamw *how, void *master, const void *gradient, void *first, void *second,
           uint64_t from, uint64_t to) {
  if (type == HB_F64)
    adamw_of(*how, (double *)master, (const double *)gradient, (double *)first, (double *)second, from, to);
  else
    adamw_of(*how, (float *)master, (const float *)gradient, (float *)first, (float *)second, from, to);
}
double squares(uint32_t type, const void *x, uint64_t n) {
  return type == HB_F64 ? squares_of((const double *)x, n) : squares_of((const float *)x, n);
}
}  // namespace

const hb_flat HB_NAME(hb_flat) = {adamw, squares};
