#include "trainer/model/initialize_together.h"

#include "trainer/model/initialize.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard {

void FillInitialTogether(const ParameterSpec& spec, uint64_t seed, std::span<float> values) {
  ParallelBlocks(std::ssize(values), InitialPart(spec), [&](int64_t begin, int64_t size) {
    FillInitial(spec, seed, values.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)), begin);
  });
}

}  // namespace trainyard
