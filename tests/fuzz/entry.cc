// libFuzzer's entry: one program for each target, which TRAINYARD_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  trainyard::fuzz::TRAINYARD_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
