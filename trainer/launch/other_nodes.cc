#include "trainer/launch/other_nodes.h"

#include <chrono>
#include <exception>
#include <utility>

#include "trainer/base/clock.h"

namespace trainyard {

OtherNodes::OtherNodes(std::function<std::shared_ptr<Store>()> connect)
    : connect_(std::move(connect)), since_(SteadySeconds()), thread_([this] { Watch(); }) {}

OtherNodes::~OtherNodes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::pair<OtherNodes::Sign, double> OtherNodes::Now() const {
  const std::lock_guard lock(mutex_);
  return {sign_, SteadySeconds() - since_};
}

void OtherNodes::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const Sign sign = Ask();
    lock.lock();
    if (sign != sign_) {
      sign_ = sign;
      since_ = SteadySeconds();
    }
    changed_.wait_for(lock, std::chrono::seconds(2), [this] { return stopping_; });
  }
}

OtherNodes::Sign OtherNodes::Ask() {
  try {
    if (!store_) store_ = connect_();
    const int64_t done = store_->Add(kLaunchersDone, 0);
    reached_ = true;
    return done > 0 ? Sign::kEnded : Sign::kThere;
  } catch (const std::exception&) {
    store_ = nullptr;
    return reached_ ? Sign::kUnreachable : Sign::kThere;
  }
}

}  // namespace trainyard
