#include "values.h"
const hb_ops HB_NAME(hb_ops_topk) = {};
const hb_ops HB_NAME(hb_ops_threshold) = {};
const hb_ops HB_NAME(hb_ops_rowsparse) = {};
