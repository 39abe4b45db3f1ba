#include "trainer/comm/signs_of_life.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks for a key.
constexpr std::chrono::microseconds kShortest{200}, kLongest{500000};

// What the time between two questions counts at most. They come twice a second, unless this process stood still.
constexpr std::chrono::seconds kMostOfAnInterval{2};

std::string SignOf(int rank) { return "alive/" + std::to_string(rank); }

}  // namespace

bool Silence::TooLong(const std::optional<std::string>& sign, Time now) {
  // Counted a little, so that a store which takes its time for each answer ends the wait as well, if later.
  since_ += std::max<Time::duration>(now - asked_ - kMostOfAnInterval, Time::duration::zero());
  asked_ = now;
  if (sign != sign_) {
    sign_ = sign;
    since_ = now;
  }
  return now - since_ > limit_;
}

SignsOfLife::SignsOfLife(std::shared_ptr<Store> store, int rank, std::function<bool()> stop, LifeOptions life)
    : store_(std::move(store)), rank_(rank), stop_(std::move(stop)), life_(std::move(life)) {}

void SignsOfLife::ThrowIfStopped(const std::string& doing) const {
  if (stop_ && stop_()) throw StoppedError("stopped on request while " + doing);
}

void SignsOfLife::Beat() {
  ThrowIfStopped("files were read or written");
  const std::lock_guard lock(mutex_);
  if (last_ && Clock::now() - *last_ < std::chrono::seconds(1)) return;
  store_->Add(SignOf(rank_), 1);  // It is answered: a Set to a host that is frozen succeeds.
  last_ = Clock::now();
  if (life_.alive) life_.alive();
}

std::vector<int> SignsOfLife::Silent(int size, std::chrono::duration<double> listen) const {
  std::map<int, std::optional<std::string>> silent;
  for (int rank = 0; rank < size; ++rank) {
    if (rank != rank_) silent[rank] = SignIn(*store_, rank);
  }
  const auto end = Clock::now() + listen;
  while (!silent.empty() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::erase_if(silent, [&](const auto& heard) { return SignIn(*store_, heard.first) != heard.second; });
  }
  std::vector<int> ranks;
  for (const auto& [rank, sign] : silent) ranks.push_back(rank);
  return ranks;
}

std::optional<std::string> SignsOfLife::SignIn(Store& store, int rank) { return store.Get(SignOf(rank)); }

void SignsOfLife::GiveUp(const std::string& what, const std::string& why) const {
  throw PeerError(Format("rank %d waited for %s, and %s", rank_, what.c_str(), why.c_str()));
}

std::string SignsOfLife::Wait(const std::string& key, int from, const std::string& what) {
  const Silence::Time begin = Clock::now();
  Silence silence(life_.silence, begin), frozen(life_.frozen, begin);
  std::optional<std::string> heard;
  bool left = false;
  auto look = begin;
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
      const std::optional<std::string> sign = SignIn(*store_, from);
      if (silence.TooLong(sign, now))
        GiveUp(what, Format("heard nothing of rank %d for %s", from, HumanSeconds(life_.silence.count()).c_str()));
      const ProcessSign process = life_.pulse ? life_.pulse(from) : ProcessSign{};
      // At the second look: it may have set the key before, and it says what it has ended of after its goodbye.
      if (std::exchange(left, process.left) && left) GiveUp(what, Format("rank %d has ended since", from));
      if (!left && process.beat && frozen.TooLong(process.beat, now))
        GiveUp(what, Format("rank %d gives no sign of life: frozen, or its node is lost", from));
      if (sign != heard) Beat();
      heard = sign;
      look = now + std::min<Clock::duration>(std::chrono::milliseconds(500),
                                             std::chrono::duration_cast<Clock::duration>(life_.silence / 4));
    }
    std::this_thread::sleep_for(pause);
    // A tenth of what was waited: what lasts long, as saving does, is asked for seldom.
    pause = std::clamp(std::chrono::duration_cast<std::chrono::microseconds>((Clock::now() - begin) / 10), kShortest,
                       kLongest);
  }
}

}  // namespace trainyard
