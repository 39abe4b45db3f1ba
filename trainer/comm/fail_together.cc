#include "trainer/comm/fail_together.h"

#include <algorithm>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/message.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"

namespace trainyard {
namespace {

constexpr size_t kMaxBytes = 4096;  // of a message that travels

std::string TextOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return MessageOf(e);
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

void FailTogether(ControlPlane& control, const std::exception_ptr& error, const std::string& what) {
  // A rank's part: -1 - rank, which is no byte, then the bytes of its message. Who has no error has no part.
  std::vector<int64_t> part;
  if (error) {
    const std::string text = TextOf(error).substr(0, kMaxBytes);
    part.push_back(-1 - control.rank());
    for (const char c : text) part.push_back(static_cast<unsigned char>(c));
  }
  std::vector<int64_t> parts;
  try {
    parts = control.AllGatherNow(part, what);
  } catch (const std::exception&) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);  // also when nobody is left to hear of it
  if (parts.empty()) return;
  const auto end = std::find_if(parts.begin() + 1, parts.end(), [](int64_t value) { return value < 0; });
  std::string text;
  for (auto c = parts.begin() + 1; c != end; ++c) text.push_back(static_cast<char>(*c));
  throw ToldError(Format("rank %lld failed in %s: %s", static_cast<long long>(-1 - parts.front()), what.c_str(),
                         ValidUtf8(text).c_str()));
}

bool EveryoneLives(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ToldError&) {
    return true;
  } catch (const PeerError&) {
    return false;
  } catch (...) {
    return true;
  }
}

}  // namespace trainyard
