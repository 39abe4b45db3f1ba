#include "trainer/kernels/stem.h"
#include "trainer/kernels/tables.h"

namespace trainyard::kernels {

const Table& Kernels() {
  static const Table& table = [&]() -> const Table& {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512) return avx512::kTable;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kTable;
    return baseline::kTable;
  }();
  return table;
}

const StemKernels* Stem() {
  static const bool can = &Kernels() == &avx512::kTable && __builtin_cpu_supports("avx512bf16");
  return can ? &avx512_bf16::kStem : nullptr;
}

}  // namespace trainyard::kernels
