#include "trainer/train/out_of_memory.h"

#include <optional>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Long = long long;

std::string Advice(const Plan& plan, bool coupled) {
  const auto micro = static_cast<Long>(plan.micro);
  if (plan.micro == 1) return "batch.micro is 1 already: choose a smaller model, or a machine with more memory";
  if (coupled)
    return Format(
        "a rank's share of %lld samples is one micro-batch, since they interact: choose a smaller "
        "batch.global or model, or a machine with more memory",
        micro);
  return Format("batch.micro is %lld; batch.micro: %lld takes less, for the same training in more pieces", micro,
                static_cast<Long>(SmallerMicro(plan.ShareOf(0).size(), plan.micro)));
}

}  // namespace

std::exception_ptr NameWhatIsTooLarge(std::exception_ptr error, const Plan& plan, bool coupled, int64_t step) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& cause) {
    const std::optional<std::string> what = FailedAllocation(cause);
    if (!what) return error;
    return std::make_exception_ptr(OutOfMemoryError(
        Format("%s in step %lld; %s", what->c_str(), static_cast<Long>(step), Advice(plan, coupled).c_str())));
  } catch (...) {
    return error;
  }
}

int64_t SmallerMicro(int64_t share, int64_t micro) {
  for (int64_t size = micro / 2; size > micro / 8; --size) {
    if (share % size == 0) return size;
  }
  return micro / 2;  // The last piece is smaller then.
}

}  // namespace trainyard
