#include "trainer/comm/patience.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {

Patience::Patience(std::chrono::duration<double> deadline, std::string what, std::function<bool()> stop, Voice voice)
    : deadline_(deadline), what_(std::move(what)), stop_(std::move(stop)), voice_(voice) {}

void Patience::CheckStop() const {
  if (stop_ && stop_()) throw StoppedError("stopped on request while waiting for " + what_);
}

void Patience::Pause(const std::function<std::string()>& problem) {
  CheckStop();
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> left = deadline_ - (now - start_);
  const bool over = left.count() <= 0, speak = voice_ == Voice::kNowAndThen && now >= next_word_;
  if (over || speak) {
    const std::string why = what_ + (problem ? ": " + problem() : "");
    if (over) throw PeerError("waited " + HumanSeconds(deadline_.count()) + " for " + why);
    std::fprintf(stderr, "waiting for %s; giving up in %s\n", why.c_str(), HumanSeconds(left.count()).c_str());
    next_word_ = now + std::chrono::seconds(30);
  }
  std::this_thread::sleep_for(pause_);
  pause_ = std::min(pause_ * 2, std::chrono::microseconds(20000));
}

}  // namespace trainyard
