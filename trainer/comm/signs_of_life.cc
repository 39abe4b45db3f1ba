#include "trainer/comm/signs_of_life.h"

#include <algorithm>
#include <map>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks for a key.
constexpr std::chrono::microseconds kShortest{200}, kLongest{500000};

std::string SignOf(int rank) { return "alive/" + std::to_string(rank); }

}  // namespace

bool Silence::TooLong(const std::optional<std::string>& sign, Time now) {
  if (sign != sign_) {
    sign_ = sign;
    since_ = now;
  }
  return now - since_ > limit_;
}

SignsOfLife::SignsOfLife(std::shared_ptr<Store> store, int rank, std::function<bool()> stop,
                         std::chrono::duration<double> silence, std::function<void()> alive)
    : store_(std::move(store)), rank_(rank), stop_(std::move(stop)), silence_(silence), alive_(std::move(alive)) {}

void SignsOfLife::ThrowIfStopped(const std::string& doing) const {
  if (stop_ && stop_()) throw StoppedError("stopped on request while " + doing);
}

void SignsOfLife::Beat() {
  ThrowIfStopped("files were read or written");
  const std::lock_guard lock(mutex_);
  if (last_ && Clock::now() - *last_ < std::chrono::seconds(1)) return;
  store_->Add(SignOf(rank_), 1);  // It is answered: a Set to a host that is frozen succeeds.
  last_ = Clock::now();
  if (alive_) alive_();
}

std::vector<int> SignsOfLife::Silent(int size, std::chrono::duration<double> listen) const {
  std::map<int, std::optional<std::string>> silent;
  for (int rank = 0; rank < size; ++rank) {
    if (rank != rank_) silent[rank] = store_->Get(SignOf(rank));
  }
  const auto end = Clock::now() + listen;
  while (!silent.empty() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::erase_if(silent, [&](const auto& heard) { return store_->Get(SignOf(heard.first)) != heard.second; });
  }
  std::vector<int> ranks;
  for (const auto& [rank, sign] : silent) ranks.push_back(rank);
  return ranks;
}

std::string SignsOfLife::Wait(const std::string& key, int from, const std::string& what) {
  Silence silence(silence_, Clock::now());
  std::optional<std::string> heard;
  const auto start = Clock::now();
  auto look = start;
  std::chrono::microseconds pause = kShortest;
  for (;;) {
    if (std::optional<std::string> value = store_->Get(key)) return *value;
    ThrowIfStopped("waiting for " + what);
    if (const auto now = Clock::now(); now >= look) {
      try {
        store_->CheckWorld();
      } catch (const PeerError&) {  // It may have set the key and ended between our two questions.
        if (std::optional<std::string> value = store_->Get(key)) return *value;
        throw;
      }
      const std::optional<std::string> sign = store_->Get(SignOf(from));
      if (silence.TooLong(sign, now))
        throw PeerError(Format("rank %d waited for %s, and heard nothing of rank %d for %s", rank_, what.c_str(), from,
                               HumanSeconds(silence_.count()).c_str()));
      if (sign != heard) Beat();
      heard = sign;
      look = now + std::min<Clock::duration>(std::chrono::milliseconds(500),
                                             std::chrono::duration_cast<Clock::duration>(silence_ / 4));
    }
    std::this_thread::sleep_for(pause);
    // A tenth of what was waited: what lasts long, as saving does, is asked for seldom.
    pause = std::clamp(std::chrono::duration_cast<std::chrono::microseconds>((Clock::now() - start) / 10), kShortest,
                       kLongest);
  }
}

}  // namespace trainyard
